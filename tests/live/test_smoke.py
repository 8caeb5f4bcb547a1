"""The shortest story: acquire, hold, release, on one node and on five."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import quorumlock
from quorumlock.lab.servers import Servers

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_one_holder_at_a_time(servers: Servers, connect: Callable[..., quorumlock.Locker], count: int) -> None:
    locks = connect(servers.urls[:count])
    rival = connect(servers.urls[:count])
    with locks.lock("orders:42", ttl=1) as lease:
        lease.check()
        assert rival.lock("orders:42", ttl=1).try_acquire() is None
    taken = rival.lock("orders:42", ttl=1).try_acquire()
    assert taken is not None
    assert taken.fence > lease.fence
    taken.release()
