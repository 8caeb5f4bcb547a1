"""The test of the stories: without a protection of the production code, the story about it is not as told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quorumlock.core import fleet, redlock, renewal
from quorumlock.core.effects import Steps
from quorumlock.core.votes import Tally
from quorumlock.engines.memory.family import Family
from quorumlock.engines.memory.locks import QUARANTINE, Locks
from quorumlock.guards.sql import SQLGuard
from quorumlock.keeping import Hold
from quorumlock.lab import story
from quorumlock.lab.stage import play
from quorumlock.lab.story_facts import judge

from .played import verdict

Patch = pytest.MonkeyPatch


def no_quarantine(patch: Patch) -> None:
    standing = Locks._not_standing

    def careless(self: Locks, marker: bytes | None, expected: bytes) -> list[int] | None:
        refusal = standing(self, marker, expected)
        return None if refusal and refusal[0] == QUARANTINE else refusal

    patch.setattr(Locks, "_not_standing", careless)


def release_without_compare(patch: Patch) -> None:
    def delete(self: Family, keys: list[bytes], argv: list[bytes]) -> int:
        self._data.pop(keys[0], None)
        return 1

    patch.setattr(Family, "_release", delete)


def no_healing(patch: Patch) -> None:
    patch.setattr(renewal, "heal", lambda *_: nothing(None))


def no_undoing(patch: Patch) -> None:
    patch.setattr(redlock, "undo", lambda *_: nothing(False))


def nothing(result: Any) -> Steps[Any]:
    yield from ()
    return result


def valid_for(share: float) -> Callable[[Patch], None]:
    def longer(patch: Patch) -> None:
        for module in (redlock, renewal):
            patch.setattr(module, "valid_until", lambda started_at, ttl, _: started_at + share * ttl)

    return longer


def a_smaller_majority(patch: Patch) -> None:
    patch.setattr(fleet.Fleet, "__post_init__", lambda self: setattr(self, "majority", len(self.nodes) // 2))


def no_entering(patch: Patch) -> None:
    patch.setattr(SQLGuard, "enter", lambda *_: None)


def no_guard(patch: Patch) -> None:
    no_entering(patch)
    patch.setattr(SQLGuard, "admit", lambda *_: None)


def renewal_for_ever(patch: Patch) -> None:
    patch.setattr(Hold, "renewable", lambda *_: True)


def no_renewal(patch: Patch) -> None:
    patch.setattr(Hold, "renewable", lambda *_: False)


def no_misfits(patch: Patch) -> None:
    for module in (fleet, redlock):
        patch.setattr(module, "refuse_misfits", lambda _: None)


def long_timeouts(patch: Patch) -> None:
    patch.setattr(fleet.Fleet, "timeout", lambda *_: 5.0)


def waiting_for_all(patch: Patch) -> None:
    patch.setattr(Tally, "_can_be_decided", lambda self: self.missing == 0)


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (no_quarantine, "amnesia"),
        (no_quarantine, "fsync-loss"),
        (no_quarantine, "majority-restart"),
        (no_quarantine, "failover"),
        (release_without_compare, "foreign-delete"),
        (no_healing, "rolling-restart"),
        (no_undoing, "lost-answer"),
        (no_undoing, "late-set"),
        (valid_for(1.0), "clock-drift"),
        (valid_for(3.0), "pause-before-answer"),
        (a_smaller_majority, "holder-nodes-die"),
        (no_entering, "read-before-write"),
        (no_guard, "pause-while-holding"),
        (no_guard, "delayed-write"),
        (no_guard, "clock-jump"),
        (renewal_for_ever, "keeper-outlives-owner"),
        (no_renewal, "work-outlives-ttl"),
        (no_misfits, "mixed-fleet"),
        (no_misfits, "eviction"),
        (long_timeouts, "majority-down"),
        (waiting_for_all, "minority-down"),
    ],
)
def test_a_broken_core_is_found_out(broken: Callable[[Patch], None], name: str, monkeypatch: Patch) -> None:
    assert not verdict(name, False).unmet
    broken(monkeypatch)
    assert judge(play(story.load(name))).unmet
