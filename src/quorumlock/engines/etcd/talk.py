"""One question to a cluster: which host is asked, for how long, and what becomes of it if that one fails.

Everything that is asked may be asked twice: locks know their token, leases their id, cells the one who set them.
So what a host did not answer is asked of the next one, until the time for it is up. But what was asked in vain may
be executed late, and a question says so (`doubtful`): whoever asked sees to it that this does no harm.

Written once for threads and asyncio: generators that yield what is to be sent, or seconds to wait. Those who drive
them are in `client.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from ...core.votes import Cause
from .place import Place

T = TypeVar("T")

PAUSE, PAUSE_MOST = 0.01, 0.2
SIGN_INS = 3

# What gRPC calls its errors.
UNKNOWN, INVALID, DEADLINE, NOT_FOUND, EXISTS, DENIED, EXHAUSTED, PRECONDITION = 2, 3, 4, 5, 6, 7, 8, 9
INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 13, 14, 16


class Post(NamedTuple):
    """To be sent to one host."""

    host: int
    path: str
    body: bytes
    token: str
    timeout: float


class Reply(NamedTuple):
    """What came of it: an answer, or why there is none."""

    status: int
    data: bytes = b""
    sent: bool = True
    """May the host have got it?"""
    late: bool = False
    why: str = ""


Steps = Generator[Post | float, Reply | None, T]


class Question:
    """What is asked of whichever host answers."""

    __slots__ = ("body", "doubtful", "path")

    def __init__(self, path: str, body: dict[str, Any] | list[dict[str, Any]]) -> None:
        self.path = path
        several = body if isinstance(body, list) else [body]
        self.body = b"".join(json.dumps(one, separators=(",", ":")).encode() for one in several)
        self.doubtful = False
        """Was it asked of somebody who did not answer, and may yet execute it?"""


class Refusal(Exception):
    """The cluster has answered: no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Trouble(Exception):
    """Nobody can tell: the cause of an UNKNOWN vote, and its detail."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


class Talk:
    """What all questions of a client share: which host is asked first, and as whom."""

    def __init__(self, place: Place, node_timeout: float, clock: Callable[[], float]) -> None:
        self._place = place
        self._clock = clock
        self.patience = max(2.0, 20 * node_timeout)
        """For how long a request as a whole may take. A cluster that elects a leader is silent for seconds."""
        self._attempt = max(0.5, self.patience / len(place.hosts))
        self.connect_timeout = min(self._attempt, max(0.5, 10 * node_timeout))
        self.host = 0
        """Who is asked first: the last that answered."""
        self.token = ""
        self.anonymous = not place.user
        """Is nobody named? Nobody is, either, where everybody is let in."""

    def until(self) -> float:
        return self._clock() + self.patience

    def ask(self, question: Question, until: float) -> Steps[dict[str, Any]]:
        """The decoded answer; of several, those are in "results". Raises Refusal or Trouble."""
        whys: dict[int, str] = {}
        cause, pause, signed_in = Cause.UNREACHABLE, PAUSE, 0
        while True:
            host, left = self.host, until - self._clock()
            if left <= 0:
                raise Trouble(cause, self._told(whys) or "there was no time left to ask")
            if not self.token and not self.anonymous:
                signed_in += 1
                yield from self._sign_in(host, left, whys)
            if self.token or self.anonymous:
                reply = yield Post(host, question.path, question.body, self.token, min(left, self._attempt))
                assert reply is not None
                if reply.status == 200:
                    return _decoded(reply.data)
                if not reply.status:
                    whys[host] = reply.why
                    if reply.sent:
                        question.doubtful = True
                        cause = Cause.SILENT if reply.late else Cause.DISCONNECTED
                else:
                    code, message = _error(reply)
                    if self._place.user and signed_in < SIGN_INS and _token_is_over(message):
                        self.token, self.anonymous = "", False
                        continue
                    self._refused(host, code, message)
                    question.doubtful, cause, whys[host] = True, Cause.FAILED, message
            if self.host == host:
                self.host = (host + 1) % len(self._place.hosts)
            if len(whys) == len(self._place.hosts):
                # All of them have failed: those that refuse a connection do so at once.
                if cause is Cause.UNREACHABLE and pause >= PAUSE_MOST:
                    raise Trouble(cause, self._told(whys))
                yield min(pause * (0.5 + random.random()), max(0.0, until - self._clock()))
                pause = min(2 * pause, PAUSE_MOST)

    def _sign_in(self, host: int, left: float, whys: dict[int, str]) -> Steps[None]:
        """Makes `_token`, unless the host does not answer; raises Trouble if it does not let us in."""
        asked = Question("/v3/auth/authenticate", {"name": self._place.user, "password": self._place.password})
        reply = yield Post(host, asked.path, asked.body, "", min(left, self._attempt))
        assert reply is not None
        if reply.status == 200:
            self.token = str(_decoded(reply.data).get("token", ""))
            if self.token:
                return
        if not reply.status:
            whys[host] = reply.why
            return
        code, message = _error(reply)
        if code == PRECONDITION:  # authentication is not enabled: everybody is let in, and so are we
            self.anonymous = True
        elif code in (INVALID, UNAUTHENTICATED, DENIED):
            raise Trouble(Cause.DENIED, f"{self._place.hosts[host]}: user {self._place.user!r}: {message}")
        else:
            whys[host] = message

    def _refused(self, host: int, code: int, message: str) -> None:
        """Raises, if this host speaks for all."""
        where = self._place.hosts[host]
        if code == DENIED:
            raise Trouble(
                Cause.DENIED,
                f"{where}: {message}: this user needs a role with readwrite on the prefix {self._place.root}",
            )
        if code == UNAUTHENTICATED or "user name is empty" in message:
            raise Trouble(Cause.DENIED, f"{where}: {message}: name a user and a password in the URL")
        if code == EXHAUSTED and "space" in message:
            raise Trouble(Cause.FAILED, f"{where}: {message}: compact and defragment it, then disarm the alarm")
        if code in (NOT_FOUND, EXISTS, PRECONDITION, INVALID, 11):
            raise Refusal(code, message)
        if code == -1:
            raise Trouble(Cause.FAILED, f"{where}: {message}")

    def _told(self, whys: dict[int, str]) -> str:
        return "; ".join(f"{self._place.hosts[host]}: {why}" for host, why in sorted(whys.items()))


def _token_is_over(message: str) -> bool:
    return "auth token" in message or "revision in header is old" in message or "user name is empty" in message


def _decoded(data: bytes) -> dict[str, Any]:
    """One answer, or the several lines of a stream."""
    try:
        if b"\n" not in data.strip():
            told = json.loads(data)
            if "result" not in told and "error" not in told:
                return told  # type: ignore[no-any-return]
        lines = [json.loads(line) for line in data.splitlines() if line.strip()]
        return {"results": [line.get("result", line) for line in lines]}
    except (ValueError, AttributeError):
        raise Trouble(Cause.FAILED, "what was answered is not of etcd's JSON gateway") from None


def _error(reply: Reply) -> tuple[int, str]:
    """Code and message; -1: that was no etcd, or one that is too old."""
    try:
        told = json.loads(reply.data)
        return int(told["code"]), str(told.get("error") or told.get("message"))[:300]
    except (ValueError, KeyError, TypeError):
        if reply.status in (502, 503, 504):
            return UNAVAILABLE, f"HTTP status {reply.status}"
        return (
            -1,
            f"HTTP status {reply.status}, which no etcd of version 3.4 or newer answers to {len(reply.data)} bytes",
        )
