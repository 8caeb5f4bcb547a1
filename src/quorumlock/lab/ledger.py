"""A resource that has the last word: a counter which remembers the highest fence it has seen.

It follows the rules of `guards/base.py`. What is sent to it arrives later, perhaps much later, and whether or not
the sender is still running.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.effects import Sleep, Steps
from ..errors import StaleFence

if TYPE_CHECKING:
    from .town import Town

PATIENCE = 1.0
"""Seconds after which who writes does not wait for the answer any more."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A write that was accepted: what its writer had read, and what was there when it came."""

    resource: str
    who: str
    fence: int
    read: int
    found: int
    entered: bool
    """Had its writer entered before it read?"""

    @property
    def lost(self) -> bool:
        """Does it undo what somebody else wrote meanwhile?"""
        return self.read != self.found


class Ledger:
    """The counter of one resource."""

    def __init__(self, town: Town, resource: str) -> None:
        self.resource = resource
        self.value = 0
        self.mark = 0
        self.entries: list[Entry] = []
        self.refused = 0
        self._town = town

    def enter(self, fence: int) -> None:
        """A new holder is here, and has read nothing yet."""
        self._admit(fence)

    def read(self) -> int:
        return self.value

    def write(self, who: str, fence: int, read: int, *, entered: bool) -> None:
        """Sets it to one more than what was read."""
        self._admit(fence)
        entry = Entry(self.resource, who, fence, read, self.value, entered)
        self.value = read + 1
        self.entries.append(entry)
        self._town.wrote(entry)

    def write_later(self, who: str, fence: int, read: int, delay: float, *, entered: bool) -> Steps[bool | None]:
        """The same over a network; None: no answer came in time."""
        answers: list[bool] = []

        def arrive() -> None:
            try:
                self.write(who, fence, read, entered=entered)
                answers.append(True)
            except StaleFence:
                self._town.log.add(self.resource, f"refuses a write of {who}: fence {fence}, seen {self.mark}")
                answers.append(False)

        self._town.world.call_later(delay, arrive)
        yield Sleep(min(delay, PATIENCE) + 0.001)
        return answers[0] if answers else None

    def _admit(self, fence: int) -> None:
        if fence < self.mark:
            self.refused += 1
            raise StaleFence(f"{self.resource!r}: fence {fence} after {self.mark}", fence, self.mark)
        self.mark = fence
