"""Requests as commands, replies as votes."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlock.core.requests import (
    Acquire,
    AcquireAll,
    AcquireAny,
    Break,
    CellEnter,
    CellGet,
    CellPut,
    CellSwap,
    Close,
    Confirm,
    ConfirmAll,
    Downgrade,
    Extend,
    Heal,
    Initialise,
    Inspect,
    InspectMany,
    Join,
    Kept,
    Leave,
    Look,
    Past,
    Refused,
    Release,
    Request,
    Scan,
    Survey,
    Ticket,
)
from quorumlock.core.votes import Cause, Vote
from quorumlock.engines.redis import scripts
from quorumlock.engines.redis.answers import decode, decode_many, decode_release
from quorumlock.engines.redis.resp import PlainReader, ReplyError, pack, pack_plainly
from quorumlock.engines.redis.scripts import Script
from quorumlock.engines.redis.wire import FREE, Wire
from quorumlock.process import anonymous_token, token

from .examples import examples

WIRE = Wire(
    prefix="app:", fleet="f00d", nodes=3, max_ttl=60.0, fence_ttl=86400.0, durable=False, quarantine=True
)  # fmt: skip
KEYS = (3, "app:job", "app:ql:fence:{app:job}", "app:ql:node")
MORE = (5, *KEYS[1:], "app:x", "app:ql:fence:{app:x}")
BROKEN = "app:ql:broken:{app:job}"
MINE, OTHER = Kept("job", "me", 10_000, 5), Kept("x", "you", 9_000, 8)
TERMS = (1, "f00d", 3, 60_000, 0, 1)
QUEUE = "app:ql:queue:{app:job}"
QUEUED = (4, *KEYS[1:], QUEUE, "me", 1000, 17, "", 15_000_000, 86_400_000)
READERS = "app:ql:readers:{app:job}"
X = ("app:x", "app:ql:fence:{app:x}")
CHANNEL = "app:ql:wake:"
CELL = (3, "app:ql:cell:{app:job}", *KEYS[2:])
LEFT = (2, "app:job", QUEUE)

SAID: list[tuple[Request, Script, tuple[object, ...]]] = [
    (Acquire("job", "me", 10_000, 17), scripts.ACQUIRE, (*KEYS, "me", 10_000, 17, "", 15_000_000, 86_400_000)),
    (Confirm("job", "me", 4, 5), scripts.CONFIRM, (*KEYS, "me", 4, 5, 86_400_000)),
    (Extend((MINE,)), scripts.EXTEND, (*KEYS, 86_400_000, "me", 10_000, 5)),
    (Extend((MINE, OTHER)), scripts.EXTEND, (*MORE, 86_400_000, "me", 10_000, 5, "you", 9_000, 8)),
    (Heal((MINE,)), scripts.HEAL, (4, *KEYS[1:], BROKEN, 86_400_000, "me", 10_000, 5)),
    (
        Heal((MINE, OTHER)),
        scripts.HEAL,
        (7, *MORE[1:], BROKEN, "app:ql:broken:{app:x}", 86_400_000, "me", 10_000, 5, "you", 9_000, 8),
    ),
    (Break("job", 17), scripts.BREAK, (6, *KEYS[1:], BROKEN, READERS, QUEUE, 86_400_000, 120_000, 17, 0, CHANNEL)),
    (Look("job"), scripts.LOOK, (*KEYS, 0)),
    (Acquire("job", "me", 1000, 17, strict=True), scripts.QUEUE, (*QUEUED, "", 0, 0, 1, 50, CHANNEL, 0, 0)),
    (
        Acquire("job", "me", 1000, 17, Ticket("t1", "room", 16, 30_000)),
        scripts.QUEUE,
        (*QUEUED, "room:t1", 16, 30_000, 0, 50, CHANNEL, 0, 0),
    ),
    (Release("job", "me"), scripts.RELEASE, (*LEFT, "me", 0, "", "", 0, "app:ql:wake:")),
    (Release("job", "me", True, "t", "l", 9), scripts.RELEASE, (*LEFT, "me", 1, "t", "l", 9, "app:ql:wake:")),
    (Release("job", "r:me"), scripts.UNREAD, (3, *LEFT[1:], READERS, "r:me", 0, "", "", 0, CHANNEL)),
    (
        Release("job", "me", names=("job", "x"), line="job"),
        scripts.RELEASE_MANY,
        (4, "app:job", QUEUE, "app:x", QUEUE, "me", 0, "", "", 0, CHANNEL),
    ),
    (
        Acquire("job", "r:me", 1000, 17, shared=True, card="c"),
        scripts.READ,
        (
            5,
            *KEYS[1:],
            QUEUE,
            READERS,
            "r:me",
            1000,
            17,
            "c",
            15_000_000,
            86_400_000,
            "",
            0,
            0,
            0,
            50,
            CHANNEL,
            1,
            0,
        ),
    ),
    (
        AcquireAny(("job", "x"), "job", "me", 1000, 17),
        scripts.ANY,
        (6, *KEYS[1:], QUEUE, *X, "me", 1000, 17, "", 15_000_000, 86_400_000, "", 0, 0, 0, 50, CHANNEL, 0, 0),
    ),
    (
        AcquireAll(("job", "x"), "me", 1000, 17),
        scripts.ALL,
        (
            7,
            *KEYS[1:],
            *X,
            QUEUE,
            "app:ql:queue:{app:x}",
            "me",
            1000,
            17,
            "",
            15_000_000,
            86_400_000,
            "",
            0,
            0,
            2,
            CHANNEL,
        ),
    ),
    (ConfirmAll(("job", "x"), "me", (1, 2), (3, 4)), scripts.CONFIRM_MANY, (*MORE, "me", 86_400_000, 1, 3, 2, 4)),
    (
        Downgrade("job", "me", 9, "r:1"),
        scripts.DOWNGRADE,
        (5, *KEYS[1:], QUEUE, READERS, "me", 9, "r:1", "", CHANNEL),
    ),
    (Inspect("job"), scripts.INSPECT, (5, *KEYS[1:], QUEUE, READERS)),
    (
        InspectMany(("job", "x")),
        scripts.INSPECT_MANY,
        (9, *MORE[1:], QUEUE, READERS, "app:ql:queue:{app:x}", "app:ql:readers:{app:x}"),
    ),
    (Scan("j*", "7", 100), scripts.SCAN, (0, "7", "app:ql:fence:{app:j*}", 100, "app:ql:fence:{app:", "app:")),
    (Past("17-3", 100), scripts.PAST, (1, "app:ql:journal", "17-3", 100)),
    (Refused("job", 7, "me", "seen 8"), scripts.REFUSED, (1, "app:job", 7, "me", "seen 8", "", "")),
    (CellGet("job"), scripts.CELL, (*CELL, "get", 0, "", 0)),
    (CellEnter("job", 3, 9), scripts.CELL, (*CELL, "enter", 3, "", 9)),
    (CellSwap("job", b"v", 3, 9), scripts.CELL, (*CELL, "swap", 3, b"v", 9)),
    (CellPut("job", b"v", 3, 9), scripts.CELL, (*CELL, "put", 3, b"v", 9)),
    (Leave("job", "room:t1"), scripts.RELEASE, (*LEFT, "", 1, "room:t1", "", 0, "app:ql:wake:")),
    (Join(), scripts.JOIN, (1, "app:ql:node", "join", *TERMS)),
    (Join(enter=True), scripts.JOIN, (1, "app:ql:node", "enter", *TERMS)),
    (Survey(), scripts.JOIN, (1, "app:ql:node", "survey", *TERMS)),
    (Close(), scripts.JOIN, (1, "app:ql:node", "close", *TERMS)),
    (Initialise(False), scripts.JOIN, (1, "app:ql:node", "init", *TERMS, 0)),
    (Initialise(True, 500), scripts.JOIN, (1, "app:ql:node", "force", *TERMS, 500)),
]


def parsed(data: bytes) -> list[bytes]:
    reader = PlainReader()
    reader.feed(data)
    command: list[bytes] = reader.gets()
    assert reader.gets() is False, "exactly one command"
    return command


@pytest.mark.parametrize(("request_", "script", "arguments"), SAID, ids=[type(one[0]).__name__ for one in SAID])
@pytest.mark.parametrize("source", [False, True])
def test_a_request_becomes_the_command_of_its_script(
    request_: Request, script: Script, arguments: tuple[object, ...], source: bool
) -> None:
    marker = b"17 60000 1 f00d 3 60000 0 1 abc"
    data = WIRE.encode(request_, source=source)
    expected: tuple[Any, ...] = ("EVAL", script.source) if source else ("EVALSHA", script.sha)
    expected += arguments
    if not isinstance(request_, (*FREE, Join)):
        data += Wire.tail(marker)
        expected += (marker,)
    assert data == pack_plainly(expected)
    assert len(parsed(data)) == len(expected)


def test_every_kind_of_request_has_a_saying() -> None:
    assert {type(request) for request, _, _ in SAID} == set(Request.__args__)


@examples
@given(st.binary(max_size=200), st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_the_marker_is_the_last_argument_whatever_it_holds(marker: bytes, name: str) -> None:
    command = parsed(WIRE.encode(Look(name)) + Wire.tail(marker))
    assert command[-1] == marker
    assert command[3] == f"app:{name}".encode()
    assert command[2] == b"3"


def test_every_key_lies_under_the_prefix() -> None:
    for request, _, _ in SAID:
        command = parsed(WIRE.encode(request) + (b"" if isinstance(request, (*FREE, Join)) else Wire.tail(b"m")))
        keys = command[3 : 3 + int(command[2])]
        assert keys or isinstance(request, Scan), "which looks for keys under the prefix"
        assert all(key.startswith(b"app:") for key in keys)


def test_the_terms_are_told_in_whole_numbers() -> None:
    wire = Wire(prefix="", fleet="x", nodes=5, max_ttl=0.3, fence_ttl=1.2, durable=True, quarantine=False)
    assert parsed(wire.encode(Join()))[4:] == [b"join", b"1", b"x", b"5", b"300", b"1", b"0"]
    assert parsed(wire.encode(Acquire("a", "t", 10, 7)) + Wire.tail(b""))[-3:-1] == [b"75000", b"1200"]


def test_a_script_is_called_by_the_hash_of_its_source() -> None:
    for script in {script for _, script, _ in SAID}:
        assert script.sha == hashlib.sha1(script.source.encode()).hexdigest()


def test_every_script_that_needs_a_marker_checks_it_first() -> None:
    standing = {scripts.ACQUIRE, scripts.CONFIRM, scripts.EXTEND, scripts.HEAL, scripts.BREAK, scripts.LOOK}
    for script in standing:
        assert script.source.index("seen[3] ~= ARGV[#ARGV]") < script.source.index("-- KEYS lock, fence, marker")
    for script in (scripts.RELEASE, scripts.JOIN):
        assert "seen[3]" not in script.source


@pytest.mark.parametrize(
    ("reply", "vote", "cause", "fence", "wait_ms"),
    [
        ([1, 42], Vote.GRANTED, Cause.AGREED, 42, 0),
        ([1, 2**53 - 1], Vote.GRANTED, Cause.AGREED, 2**53 - 1, 0),
        ([1], Vote.UNKNOWN, Cause.FAILED, 0, 0),
        ([1, -5], Vote.UNKNOWN, Cause.FAILED, 0, 0),
        ([1, b""], Vote.UNKNOWN, Cause.FAILED, 0, 0),
        ([-2, b"x"], Vote.UNKNOWN, Cause.FAILED, 0, 0),
        ([0, 900, 41], Vote.REFUSED, Cause.HELD, 41, 900),
        ([0, -1, 41], Vote.REFUSED, Cause.HELD, 41, 0),
        ([-1], Vote.REFUSED, Cause.STRANGER, 0, 0),
        ([-2, 1500], Vote.REFUSED, Cause.QUARANTINE, 0, 1500),
        ([-3], Vote.REFUSED, Cause.ABSENT, 0, 0),
        ([-4], Vote.REFUSED, Cause.OTHER_KIND, 0, 0),
        ([-5], Vote.REFUSED, Cause.CHANGED, 0, 0),
    ],
)
def test_a_scripts_reply_is_a_vote(reply: list[Any], vote: Vote, cause: Cause, fence: int, wait_ms: int) -> None:
    answer = decode(reply)
    assert (answer.vote, answer.cause, answer.fence, answer.wait_ms) == (vote, cause, fence, wait_ms)


@pytest.mark.parametrize(
    ("said", "vote", "causes"),
    [
        (b"y", Vote.GRANTED, [Cause.AGREED]),
        (b"yyy", Vote.GRANTED, [Cause.AGREED] * 3),
        (b"n", Vote.REFUSED, [Cause.HELD]),
        (b"aa", Vote.REFUSED, [Cause.ABSENT] * 2),
        (b"ynak", Vote.REFUSED, [Cause.AGREED, Cause.HELD, Cause.ABSENT, Cause.OTHER_KIND]),
    ],
)
def test_a_reply_about_many_leases_says_why_for_each(said: bytes, vote: Vote, causes: list[Cause]) -> None:
    answer = decode_many([1, said], len(said))
    assert answer.vote is vote
    assert [answer.of(lease) for lease in range(len(said))] == causes


@pytest.mark.parametrize(
    "reply", [[1, b"y?"], [1, b"yyy"], [1, b"y"], [1, b""], [1, 5], [1], [2, b"yy"], b"yy", None]
)
def test_a_reply_about_two_leases_that_is_none_is_unknown(reply: Any) -> None:
    assert decode_many(reply, 2).vote is Vote.UNKNOWN


def test_a_refusal_of_the_node_is_one_of_all_leases() -> None:
    assert decode_many([-1], 2).of(1) is Cause.STRANGER


@pytest.mark.parametrize(
    ("reply", "vote", "cause"),
    [
        (1, Vote.GRANTED, Cause.AGREED),
        (0, Vote.REFUSED, Cause.HELD),
        (-3, Vote.REFUSED, Cause.ABSENT),
        (2, Vote.GRANTED, Cause.AGREED),
        (3, Vote.UNKNOWN, Cause.FAILED),
        (None, Vote.UNKNOWN, Cause.FAILED),
        (ReplyError("BUSY"), Vote.UNKNOWN, Cause.FAILED),
    ],
)
def test_a_releases_reply_is_a_bare_number(reply: object, vote: Vote, cause: Cause) -> None:
    assert decode_release(reply)[:2] == (vote, cause)


@pytest.mark.parametrize(
    "text",
    ["OOM command not allowed", "READONLY You can't write", "BUSY Redis is busy", "LOADING Redis is loading",
     "NOAUTH Authentication required.", "NOPERM no permissions", "MISCONF snapshots", "MOVED 1 10.0.0.1:1",
     "WRONGTYPE Operation", "ERR unknown command 'EVALSHA'"],
)  # fmt: skip
def test_a_servers_error_is_an_unknown_vote_with_its_cause(text: str) -> None:
    answer = decode(ReplyError(text))
    assert (answer.vote, answer.cause, answer.detail) == (Vote.UNKNOWN, Cause.FAILED, text)


def test_a_long_error_is_cut() -> None:
    assert len(decode(ReplyError("ERR " + "x" * 10_000)).detail) <= 160


@examples
@given(
    st.none() | st.integers() | st.binary() | st.lists(st.none() | st.binary(), max_size=3)
    | st.lists(st.sampled_from([9, -9, 0, 2, -6]), min_size=1, max_size=2)
)  # fmt: skip
def test_anything_else_grants_nothing(reply: object) -> None:
    answer = decode(reply)
    assert (answer.vote, answer.cause) == (Vote.UNKNOWN, Cause.FAILED)


@examples
@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), st.integers(10, 10**8), st.integers(1, 2**53)
)
def test_what_is_packed_from_parts_is_what_would_be_packed_as_a_whole(
    name: str, ttl_ms: int, candidate: int
) -> None:
    for request in (Acquire(name, token(), ttl_ms, candidate), Release(name, anonymous_token())):
        whole = WIRE.encode(request, source=True)
        script = scripts.ACQUIRE if isinstance(request, Acquire) else scripts.RELEASE
        expected = whole.replace(pack(("EVAL", script.source))[4:], pack(("EVALSHA", script.sha))[4:], 1)
        assert WIRE.encode(request) == expected
        assert WIRE.encode(request) == expected, "and again, when the name is known"


def test_names_that_are_known_are_forgotten_before_they_fill_the_memory() -> None:
    wire = Wire(prefix="", fleet="f", nodes=3, max_ttl=60, fence_ttl=240, durable=False, quarantine=True)
    for number in range(5000):
        wire.encode(Acquire(f"name-{number}", "t", 1000, 1))
    assert len(wire._acquires) <= 1000
