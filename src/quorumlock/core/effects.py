"""What a procedure can ask of a runner: a round of requests, some sleep, or to listen and wait."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, TypeVar

from .requests import Request
from .votes import Tally

if TYPE_CHECKING:
    from .room import Room, Watch

T = TypeVar("T")


class Route:
    """What all rounds of one acquisition share.

    A release must travel behind the request it undoes, on the same connection: a runner that has more than
    one connection to a node remembers here which ones it took.
    """

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken: object = None


class Round:
    """Send `requests[i]` to node i (None: leave it alone), until the tally is decided or time is up.

    On return every node that was asked has cast a vote or was given up as UNKNOWN, or the tally is decided
    without it; answers that come later are still entered. `everyone` also asks nodes that are suspected to
    be down; without it they may be left out, as long as a majority is asked.
    """

    __slots__ = ("everyone", "requests", "route", "tally", "timeout")

    def __init__(
        self,
        requests: Sequence[Request | None],
        tally: Tally,
        timeout: float,
        route: Route,
        everyone: bool = False,
    ) -> None:
        self.requests = requests
        self.tally = tally
        self.timeout = timeout
        self.route = route
        self.everyone = everyone


class Sleep:
    """Do nothing for `seconds`."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Listen:
    """Let the nodes announce to this room; on return those that are `room.ears` do. Takes `timeout` at the most."""

    __slots__ = ("room", "timeout")

    def __init__(self, room: Room, timeout: float) -> None:
        self.room = room
        self.timeout = timeout


class Wait:
    """Do nothing until the watch is rung by so many nodes, or from within this process; at most for `seconds`."""

    __slots__ = ("nodes", "seconds", "watch")

    def __init__(self, watch: Watch, seconds: float, nodes: int = 1) -> None:
        self.watch = watch
        self.seconds = seconds
        self.nodes = nodes

    @property
    def over(self) -> bool:
        return self.watch.called or len(self.watch.rung) >= self.nodes


Effect = Round | Sleep | Listen | Wait
Steps = Generator[Effect, None, T]
