"""Which nodes to leave out for now: a circuit breaker for each, and the choice for a round.

A node that was silent is suspected, and is asked again when its next probe is due. Suspects are left out only
while a majority is asked without them, so suspicion costs nothing but a vote that would not have come.
"""

from __future__ import annotations

from .effects import Round
from .votes import Cause, Tally, unknown

FIRST_PROBE = 0.05
LAST_PROBE = 0.5


class Health:
    """What we believe of one node; shared by all connections to it."""

    __slots__ = ("failures", "probe_at", "why")

    def __init__(self) -> None:
        self.failures = 0
        self.probe_at = 0.0
        self.why = ""

    def failed(self, now: float, why: str = "") -> bool:
        """It did not answer. True if this is news."""
        self.failures += 1
        self.why = why
        self.probe_at = now + min(LAST_PROBE, FIRST_PROBE * 2.0 ** min(self.failures - 1, 10))
        return self.failures == 1

    def answered(self) -> bool:
        """It answered. True if this is news."""
        news = self.failures > 0
        self.failures = 0
        return news

    def suspect(self, now: float) -> bool:
        return self.failures > 0 and now < self.probe_at


def leave_out(round_: Round, healths: list[Health], majority: int, now: float) -> None:
    """Casts LEFT_OUT for suspects that this round can do without."""
    if round_.everyone:
        return
    asked = [i for i, request in enumerate(round_.requests) if request is not None]
    suspects = [i for i in asked if healths[i].suspect(now)]
    for i in suspects[: max(0, len(asked) - majority)]:
        round_.tally.cast(i, unknown(Cause.LEFT_OUT, healths[i].why))


def give_up(round_: Round) -> list[int]:
    """Closes a round; gives the nodes that were still waited for, now UNKNOWN because time was up."""
    tally: Tally = round_.tally
    silent: list[int] = []
    if not tally.decided:
        detail = f"{round_.timeout * 1000:.0f} ms"
        for i, request in enumerate(round_.requests):
            if request is not None and tally.answers[i] is None:
                silent.append(i)
                tally.cast(i, unknown(Cause.SILENT, detail))
    tally.close()
    return silent
