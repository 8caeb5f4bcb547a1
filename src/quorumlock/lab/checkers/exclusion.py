"""At most one valid lease at a time; those who only read may be several.

Valid is what the lease itself says, by its client's clock (`remaining()`), at the same instant of the world. It is
looked at whenever a lease begins or is renewed: no two can come to be valid at a time in any other way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.requests import READER
from ..client import SimLease
from .base import Checker

if TYPE_CHECKING:
    from ..town import Town


class Exclusion(Checker):
    name = "exclusion"
    rests_on = frozenset({"clock-step", "drift", "deleted", "forced", "unguarded", "mixed"})

    def __init__(self, town: Town) -> None:
        super().__init__(town)
        self._holders: dict[str, list[SimLease]] = {}
        self._told: set[tuple[str, str]] = set()

    def granted(self, lease: SimLease, since: float) -> None:
        self._look(lease)

    def renewed(self, lease: SimLease) -> None:
        self._look(lease)

    def _look(self, lease: SimLease) -> None:
        if lease.remaining() <= 0:
            return
        shares = _shares(lease)
        for resource in lease.fences:
            others = [one for one in self._holders.get(resource, ()) if one is not lease and one.remaining() > 0]
            for other in others:
                if not (shares and _shares(other)):
                    self._complain(resource, other, lease)
            self._holders[resource] = [*others, lease]

    def _complain(self, resource: str, one: SimLease, other: SimLease) -> None:
        pair = (one.token, other.token)
        if pair not in self._told:
            self._told.add(pair)
            told = " and ".join(
                f"{each.held_by} (fence {each.fences[resource]}, {each.remaining():.3f} s left)"
                for each in (one, other)
            )
            self.complain(f"{resource} is held by {told}")


def _shares(lease: SimLease) -> bool:
    """Also who has asked to share what it had alone: from then on it does not rely on being alone."""
    return lease.token.startswith(READER)
