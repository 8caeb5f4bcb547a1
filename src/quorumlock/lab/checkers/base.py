"""What a checker is: it is told what happens in a town, and says what should not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ...errors import LossReason
    from ...runners.virtual import VirtualNode
    from ..client import SimLease
    from ..ledger import Entry
    from ..town import Town
    from ..workloads.base import Wait


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise was not kept. `excuse`: an assumption that it rests on was broken before."""

    checker: str
    at: float
    text: str
    excuse: str | None = None


class Checker:
    """One promise. What it does not override it is not told."""

    name: ClassVar[str]
    rests_on: ClassVar[frozenset[str]] = frozenset()
    """Assumptions (see `town.py`) without which the promise was not given."""

    def __init__(self, town: Town) -> None:
        self.town = town

    def granted(self, lease: SimLease, since: float) -> None:
        """An attempt that began at `since`, by the world's clock, has ended with a lease."""

    def renewed(self, lease: SimLease) -> None: ...
    def lost(self, lease: SimLease, reason: LossReason) -> None: ...
    def trusted(self, lease: SimLease) -> None:
        """`check()` has just said yes."""

    def executed(self, node: VirtualNode, command: list[bytes]) -> None:
        """A node has run a script."""

    def wrote(self, entry: Entry) -> None:
        """A guarded resource has accepted a write."""

    def waits(self, wait: Wait) -> None: ...
    def waited(self, wait: Wait) -> None: ...
    def calmed(self) -> None:
        """Faults have stopped."""

    def stuck(self) -> None:
        """Everybody has had the time to finish; some may not have."""

    def left(self) -> None:
        """The workers are done, and everything was given back; a moment has passed."""

    def expired(self) -> None:
        """As long again as any lock may live."""

    def forgotten(self) -> None:
        """As long again as any ticket may."""

    def complain(self, text: str) -> None:
        self.town.complain(self, text)


HOOKS = (
    "granted", "renewed", "lost", "trusted", "executed", "wrote", "waits", "waited", "calmed", "stuck", "left",
    "expired", "forgotten",
)  # fmt: skip
