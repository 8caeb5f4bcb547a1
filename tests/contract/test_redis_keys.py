"""The contract of the Redis engine alone: which keys it writes, and in which form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from quorumlock import EngineError, NoQuorum
from quorumlock.lab.servers import Server
from tests.live.tools import get, keys, pttl
from tests.support.waiting import PATIENCE

from .grounds import RedisGround
from .stage import LONG, Stage, case, held

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
    lease = await held(locks.lock("a", ttl=LONG))
    await everywhere(stage, lambda node: node.command("TYPE", "a") == b"+string\r\n")
    await everywhere(stage, lambda node: get(node, "a") == lease.token)
    await lease.release()


@case
async def test_every_key_has_a_ttl_but_the_marker(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    await lease.extend()
    gone = await held(locks.lock("b", ttl=LONG))
    await gone.release()
    await locks.break_("c")
    expected = {"a", "ql:fence:{a}", "ql:fence:{b}", "ql:fence:{c}", "ql:broken:{c}", "ql:node"}
    await everywhere(stage, lambda node: keys(node) == expected)
    for node in nodes(stage):
        assert {key for key in keys(node) if pttl(node, key) == -1} == {"ql:node"}
    await lease.release()


@case
async def test_a_prefix_is_put_before_every_key(stage: Stage) -> None:
    locks = await stage.connect(prefix="shop:")
    lease = await held(locks.lock("a", ttl=LONG))
    await everywhere(stage, lambda node: get(node, "shop:a") == lease.token)
    await everywhere(stage, lambda node: keys(node) == {"shop:a", "shop:ql:fence:{shop:a}", "shop:ql:node"})
    await lease.release()


@pytest.mark.takes_time
@case
async def test_a_key_set_by_another_library_excludes_us(stage: Stage) -> None:
    locks = await stage.connect()
    for node in nodes(stage):
        node.command("SET", "a", "redsync's value", "NX", "PX", "300")
    assert await locks.lock("a", ttl=LONG).try_acquire() is None
    lease = await locks.lock("a", ttl=LONG).acquire(timeout=PATIENCE)
    await lease.release()


@case
async def test_a_key_of_another_kind_is_told_by_every_kind_of_lock(stage: Stage) -> None:
    """Nobody takes it for a lock, and nobody overwrites it."""
    locks = await stage.connect()
    for node in nodes(stage):
        for key in ("a", "s#0", "ql:cell:{c}"):
            node.command("HSET", key, "field", "value")
    pair = locks.read_write("a")
    attempts: list[Callable[[], Awaitable[object]]] = [
        locks.lock("a", ttl=LONG).try_acquire,
        locks.lock("a", ttl=LONG, fair=True).try_acquire,
        locks.lock("a", ttl=LONG).locked,
        pair.read(ttl=LONG).try_acquire,
        pair.write(ttl=LONG).try_acquire,
        locks.semaphore("s", 1, ttl=LONG).try_acquire,
        locks.multi(["b", "a"], ttl=LONG).try_acquire,
        locks.election("a", ttl=LONG).lead(timeout=0.05).__aenter__,
        locks.election("a", ttl=LONG).leader,
        partial(locks.inspect, "a"),
        partial(locks.break_, "a"),
    ]
    for attempt in attempts:
        with pytest.raises(NoQuorum, match="another kind"):
            await attempt()
    attempts = [locks.cell("c").get, partial(locks.cell("c").set, "x", 0)]
    for attempt in attempts:
        with pytest.raises(EngineError, match="another kind"):
            await attempt()
    for node in nodes(stage):
        for key in ("a", "s#0", "ql:cell:{c}"):
            assert node.command("HGET", key, "field") == b"$5\r\nvalue\r\n"
        assert {key for key in keys(node) if not key.startswith("ql:")} == {"a", "s#0"}
