"""A process that is held up just when it was granted a lock: its time is over before anybody has the lease."""

from __future__ import annotations

from typing import Any

import pytest

import quorumlock
from quorumlock import LossReason
from quorumlock.events import Event, Lost


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"]])
def test_what_is_lost_as_soon_as_it_is_in_care_is_lost_properly(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    with quorumlock.connect("memory://held-up") as locks:
        keeper, watch = locks._keeper, locks._keeper.watch
        held = [0]

        def overtaken(hold: Any) -> None:
            watch(hold)
            held[0] += 1
            if held[0] == len(names):
                hold.expire()

        monkeypatch.setattr(keeper, "watch", overtaken)
        locks.subscribe(told.append)
        lock = locks.lock("a") if len(names) == 1 else locks.multi(names)
        lease = lock.acquire(timeout=5)
        assert not lease.held
        assert [event.reason for event in told if isinstance(event, Lost)] == [LossReason.EXPIRED]
        assert keeper.charges() == [], "renewed although lost"
        lease.release()
