"""The contract of the Redis engine alone: which keys it writes, and in which form."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quorumlock.lab.servers import Server
from tests.live.tools import get, keys, pttl

from .grounds import RedisGround
from .stage import Stage, case, held

pytestmark = pytest.mark.redis_keys


async def everywhere(stage: Stage, condition: Callable[[Server], bool]) -> None:
    """Fails unless `condition` comes true on every node."""
    for node in nodes(stage):
        assert await stage.until(lambda node=node: condition(node)), f"not on {node.label}: {keys(node)}"  # type: ignore[misc]


def nodes(stage: Stage) -> list[Server]:
    assert isinstance(stage.ground, RedisGround)
    return list(stage.ground.servers)


@case
async def test_the_lock_is_a_plain_string_that_holds_the_token(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=1))
    await everywhere(stage, lambda node: node.command("TYPE", "a") == b"+string\r\n")
    await everywhere(stage, lambda node: get(node, "a") == lease.token)
    await lease.release()


@case
async def test_every_key_has_a_ttl_but_the_marker(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=1))
    await lease.extend()
    gone = await held(locks.lock("b", ttl=1))
    await gone.release()
    await locks.break_("c")
    expected = {"a", "ql:fence:{a}", "ql:fence:{b}", "ql:fence:{c}", "ql:node"}
    await everywhere(stage, lambda node: keys(node) == expected)
    for node in nodes(stage):
        assert {key for key in keys(node) if pttl(node, key) == -1} == {"ql:node"}
    await lease.release()


@case
async def test_a_prefix_is_put_before_every_key(stage: Stage) -> None:
    locks = await stage.connect(prefix="shop:")
    lease = await held(locks.lock("a", ttl=1))
    await everywhere(stage, lambda node: get(node, "shop:a") == lease.token)
    await everywhere(stage, lambda node: keys(node) == {"shop:a", "shop:ql:fence:{shop:a}", "shop:ql:node"})
    await lease.release()


@pytest.mark.takes_time
@case
async def test_a_key_set_by_another_library_excludes_us(stage: Stage) -> None:
    locks = await stage.connect()
    for node in nodes(stage):
        node.command("SET", "a", "redsync's value", "NX", "PX", "100")
    assert await locks.lock("a", ttl=1).try_acquire() is None
    lease = await locks.lock("a", ttl=1).acquire(timeout=3)
    await lease.release()
