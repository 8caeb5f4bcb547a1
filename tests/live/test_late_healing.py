"""A lock that was forced open stays open: no healing that was under way meanwhile brings it back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

import quorumlock
from quorumlock import LossReason
from quorumlock.core import renewal
from quorumlock.core.effects import Route, Steps
from quorumlock.core.fleet import Fleet
from quorumlock.core.redlock import Grant
from quorumlock.core.renewal import Extension
from quorumlock.core.votes import Cause
from quorumlock.lab.servers import Servers, free_port
from tests.support.waiting import eventually

from .tools import get

pytestmark = [pytest.mark.live, pytest.mark.one_kind, pytest.mark.real_time(0.2)]

Connect = Callable[..., quorumlock.Locker]


@pytest.mark.parametrize("how", ["broken", "deleted"])
def test_what_was_forced_open_is_not_undone_by_a_healing_under_way(
    servers: Servers, connect: Connect, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Node 0 has forgotten the lock, 1 and 2 renew it; a pause; it is gone from 0 and 1; then node 0 is healed."""
    extended, go = threading.Event(), threading.Event()
    heal = renewal.heal

    def late(fleet: Fleet, grants: Sequence[Grant], extensions: Sequence[Extension], route: Route) -> Steps[None]:
        if any(extension.tally.caused(Cause.ABSENT) for extension in extensions):
            extended.set()
            go.wait()
        yield from heal(fleet, grants, extensions, route)

    monkeypatch.setattr(renewal, "heal", late)
    locks = connect(servers.urls[:3], fleet="shop", node_timeout=0.5)
    cut_off = connect([*servers.urls[:2], f"redis://127.0.0.1:{free_port()}"], fleet="shop", node_timeout=0.5)
    told = threading.Event()
    lease = locks.lock("a", ttl=1, on_lost=lambda _: told.set()).acquire()
    servers[0].command("DEL", "a")
    assert extended.wait(20)
    if how == "broken":
        cut_off.break_("a")
    else:
        servers[1].command("DEL", "a")
    assert get(servers[2], "a") == lease.token, "a minority still has it"
    go.set()
    assert told.wait(20), "the holder goes on"
    with pytest.raises(quorumlock.LeaseLost) as lost:
        lease.check()
    assert lost.value.reason is LossReason.BROKEN
    assert eventually(lambda: get(servers[0], "a") is None)
    following = locks.lock("a", ttl=1).acquire(timeout=20)
    assert following.fence > lease.fence
    extended.clear()
    servers[0].command("DEL", "a")
    assert extended.wait(20), "a later lease is healed as ever"
    following.release()
