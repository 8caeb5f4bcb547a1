"""What a procedure can ask of a runner: a round of requests, or some sleep."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

from .requests import Request
from .votes import Tally

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


Effect = Round | Sleep
Steps = Generator[Effect, None, T]
