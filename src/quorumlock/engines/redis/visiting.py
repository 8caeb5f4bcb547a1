"""What a server is asked by somebody who only looks: over a connection of its own, and changing nothing.

A visit is a generator. It yields bytes, which are to be sent, and is given whatever bytes come then; or a number of
seconds, for which to do nothing. So one visit serves threads and asyncio.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...core.requests import Survey
from ...core.states import median
from ..base import Visit
from .entries import WANTS_PASSWORD
from .resp import ReplyError, new_reader, pack
from .wire import Wire

T = TypeVar("T")
Questions = Generator[bytes | float, Any, T]
"""A visit that thinks in replies: it is given one for each command, None for a pause; and for b"" the next reply to
what was sent before."""


@dataclass(frozen=True, slots=True)
class Trip:
    """A question for the time, and its answer."""

    took: float
    offset: float
    """The server's clock less ours, if the answer was made half way."""
    at: float
    """When it was asked, by a clock of ours that never jumps."""
    server_at: float
    """What it answered."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a server said of itself."""

    survey: Any
    """The reply of join.lua, or a ReplyError."""
    info: dict[str, str]
    """Empty, where INFO is denied."""
    trips: tuple[Trip, ...]

    @property
    def latency(self) -> float | None:
        return median(trip.took for trip in self.trips) if self.trips else None

    @property
    def offset(self) -> float | None:
        """By the quickest answer, which leaves the least doubt."""
        return min(self.trips, key=lambda trip: trip.took).offset if self.trips else None


def look(wire: Wire, samples: int) -> Questions[Sighting]:
    """Asks for the marker, for INFO, and a few times for the time."""
    survey = yield wire.encode(Survey(), source=True)
    info = yield pack(("INFO",))
    trips = []
    for _ in range(samples):
        trip = yield from time_of_day()
        if trip is not None:
            trips.append(trip)
    return Sighting(survey, fields(info), tuple(trips))


def all_of(commands: Sequence[tuple[str | bytes | int, ...]]) -> Questions[list[Any]]:
    """Several commands in one piece; a reply for each."""
    replies = [(yield b"".join(map(pack, commands)))]
    for _ in commands[1:]:
        replies.append((yield b""))  # noqa: PERF401 - no comprehension can yield
    return replies


def time_of_day(
    wall: Callable[[], float] = time.time, clock: Callable[[], float] = time.perf_counter
) -> Questions[Trip | None]:
    """None: the server does not tell."""
    wall_at, at = wall(), clock()
    reply = yield pack(("TIME",))
    took = clock() - at
    match reply:
        case [bytes(seconds), bytes(micros)] if seconds.isdigit() and micros.isdigit():
            server_at = int(seconds) + int(micros) / 1e6
            return Trip(took, server_at - (wall_at + took / 2), at, server_at)
    return None


def fields(info: Any) -> dict[str, str]:
    """The lines of INFO."""
    if not isinstance(info, bytes):
        return {}
    pairs = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value for name, mark, value in pairs if mark}


def _admitted(questions: Questions[T]) -> Questions[T]:
    """A server that wants a password hangs up on whoever says much without one: first there is something short."""
    reply = yield pack(("PING",))
    if isinstance(reply, ReplyError) and str(reply).startswith("NOAUTH"):
        raise PermissionError(WANTS_PASSWORD)
    return (yield from questions)


def in_bytes(questions: Questions[T]) -> Visit[T]:
    """The same for a runner, which knows nothing of replies. Raises PermissionError."""
    reader = new_reader()
    questions = _admitted(questions)
    reply: Any = None
    while True:
        try:
            asked = questions.send(reply)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if isinstance(asked, float):
            yield asked
            reply = None
            continue
        if asked:
            reader.feed((yield asked))
        while (reply := reader.gets()) is False:
            reader.feed((yield b""))


def server(info: dict[str, str]) -> tuple[str | None, str | None]:
    """What it is, and its version."""
    if "valkey_version" in info:
        return "valkey", info["valkey_version"]
    if "redis_version" in info:
        return "redis", info["redis_version"]
    return None, None
