"""What the replies of scripts mean, as answers of a node."""

from __future__ import annotations

from typing import Any

from ...core.votes import GRANTED, Answer, Cause, History, Noted, Sight, Vote, of_each, unknown
from .resp import ReplyError

_AGREED = Cause.AGREED
_SAID = {
    ord("y"): Cause.AGREED,
    ord("n"): Cause.HELD,
    ord("a"): Cause.ABSENT,
    ord("k"): Cause.OTHER_KIND,
    ord("q"): Cause.QUARANTINE,
    ord("m"): Cause.FORGOTTEN,
}
"""What a letter says of one of many leases."""

_REFUSALS = {
    -1: Cause.STRANGER,
    -2: Cause.QUARANTINE,
    -3: Cause.ABSENT,
    -4: Cause.OTHER_KIND,
    -5: Cause.CHANGED,
}

_RELEASES = {
    1: Answer(Vote.GRANTED, Cause.AGREED),
    2: Answer(Vote.GRANTED, Cause.AGREED, place=1),
    0: Answer(Vote.REFUSED, Cause.HELD),
    -3: Answer(Vote.REFUSED, Cause.ABSENT),
}


def decode_release(reply: Any) -> Answer:
    """What the reply to a release means: it is a bare number."""
    answer = _RELEASES.get(reply) if type(reply) is int else None
    return answer or decode(reply)


def decode_many(reply: Any, count: int) -> Answer:
    """What the reply to a request about `count` leases means."""
    match reply if type(reply) is list else None:
        case [1, bytes(said), *left_ms] if len(said) == count and not said.strip(b"ynakqm"):
            answer = of_each([_SAID[letter] for letter in said])
            return answer._replace(wait_ms=left_ms[0]) if left_ms and type(left_ms[0]) is int else answer
        case [1, _]:
            return _unexpected(reply)
    return decode(reply)


def decode_sight(reply: Any) -> Answer:
    """What the reply to an inspection means."""
    if type(reply) is list and len(reply) == 2 and reply[0] == 2 and type(reply[1]) is list:
        return Answer(GRANTED, _AGREED, parts=tuple(decode_sight(one) for one in reply[1]))
    match reply if type(reply) is list else None:
        case [1, bytes(value), int(left_ms), bytes(known), list(readers), list(waiters)]:
            fence, since, start, card = [*known.decode("utf-8", "replace").split(" ", 3), "0", "0", "", ""][:4]
            ends = zip(readers[::2], readers[1::2], strict=False)
            sight = Sight(
                value.decode("utf-8", "replace"),
                left_ms,
                int(fence) if fence.isdigit() else 0,
                int(since) if since.isdigit() else 0,
                start,
                card,
                tuple((_text(token), left) for token, left in ends if left > 0),
                tuple(_text(member) for member in waiters),
            )
            return Answer(GRANTED, _AGREED, sight=sight)
    return decode(reply)


def decode_names(reply: Any) -> Answer:
    """What the reply to a step of a search means."""
    if type(reply) is list and reply and all(type(one) is bytes for one in reply):
        return Answer(GRANTED, _AGREED, names=tuple(_text(one) for one in reply))
    return decode(reply)


def decode_history(reply: Any) -> Answer:
    """What the reply to a question for the journal means."""
    match reply if type(reply) is list else None:
        case [int(now_us), bytes(oldest), list(words)] if len(words) % 6 == 0:
            told = [_text(word) for word in words]
            rows = tuple(_noted(*told[at : at + 6]) for at in range(0, len(told), 6))
            return Answer(GRANTED, _AGREED, history=History(now_us, _at_us(_text(oldest)), rows))
    return decode(reply)


def _noted(id_: str, what: str, name: str, fence: str, by: str, detail: str) -> Noted:
    number = int(fence) if fence.isdecimal() and len(fence) < 20 else 0
    return Noted(id_, _at_us(id_), what, name, number, by, detail)


def _at_us(id_: str) -> int:
    at_ms = id_.partition("-")[0]
    return int(at_ms) * 1000 if at_ms.isdecimal() else 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def decode_all(reply: Any, count: int) -> Answer:
    """What the reply to a request for `count` locks means."""
    if type(reply) is list and len(reply) == count + 1 and reply[0] == 1 and all(type(one) is int for one in reply):
        return Answer(GRANTED, _AGREED, max(reply[1:]), fences=tuple(reply[1:]))
    return decode(reply)


def decode(reply: Any) -> Answer:
    """What any other script's reply means as a vote."""
    if type(reply) is list and len(reply) == 2 and reply[0] == 1:
        fence = reply[1]
        if type(fence) is int and fence >= 0:
            return Answer(GRANTED, _AGREED, fence)
    match reply if type(reply) is list else None:
        case [1, int(fence), int(choice)] if fence >= 0:
            return Answer(GRANTED, _AGREED, fence, choice=choice)
        case [1, int(version), bytes(value)] if version >= 0:
            return Answer(GRANTED, _AGREED, version, value=value)
        case [-5, int(version)]:
            return Answer(Vote.REFUSED, Cause.CHANGED, version)
        case [0, int(pttl), int(fence), *place] if all(type(one) is int for one in place[:1]):
            return Answer(Vote.REFUSED, Cause.HELD, fence, max(0, pttl), place=sum(place[:1]))
        case [int(code)] if code in _REFUSALS:
            return Answer(Vote.REFUSED, _REFUSALS[code])
        case [-2, int(left_ms)]:
            return Answer(Vote.REFUSED, Cause.QUARANTINE, wait_ms=left_ms)
    if isinstance(reply, ReplyError):
        return unknown(Cause.FAILED, str(reply)[:160])
    return _unexpected(reply)


def _unexpected(reply: Any) -> Answer:
    return unknown(Cause.FAILED, f"unexpected answer of type {type(reply).__name__}")
