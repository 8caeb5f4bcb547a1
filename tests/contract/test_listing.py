"""The contract of `list`: the names of locks that are held, and of no others."""

from __future__ import annotations

import asyncio

import pytest

import quorumlock
from quorumlock import NoQuorum
from quorumlock.lab.servers import free_port

from .stage import LONG, Stage, case, held


@case
async def test_only_what_is_held_is_listed(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    assert await theirs.list() == []
    leases = [
        await held(ours.lock("jobs:2", ttl=LONG)),
        await held(ours.lock("jobs:1", ttl=LONG)),
        await held(ours.multi(["m", "n"], ttl=LONG)),
        await held(ours.semaphore("s", 1, ttl=LONG)),
        await held(ours.read_write("r").read(ttl=LONG)),
    ]
    gone = await held(ours.lock("jobs:3", ttl=LONG))
    await gone.release()
    for locks in (ours, theirs):
        assert await locks.list() == ["jobs:1", "jobs:2", "m", "n", "r", "s#0"]
        assert await locks.list("*") == await locks.list()
    for lease in leases:
        await lease.release()
    await stage.agrees("jobs:1", None)
    for name in ("m", "n", "r", "s#0", "jobs:2"):
        await stage.agrees(name, None)
    assert await theirs.list() == []


@case
async def test_patterns(stage: Stage) -> None:
    locks = await stage.connect()
    names = ["a", "aa", "ab", "b", "x.y", "xzy", "äö"]
    leases = [await held(locks.lock(name, ttl=LONG)) for name in names]
    expected = {
        "a": ["a"], "a*": ["a", "aa", "ab"], "?": ["a", "b"], "a?": ["aa", "ab"], "*b": ["ab", "b"],
        "x.y": ["x.y"], "x?y": ["x.y", "xzy"], "*": names, "**": names, "c*": [], "???": ["x.y", "xzy"],
        "ä*": ["äö"],
    }  # fmt: skip
    for pattern, found in expected.items():
        assert await locks.list(pattern) == found, pattern
    for lease in leases:
        await lease.release()


@case
async def test_at_most_so_many(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.multi([f"l{index:02}" for index in range(20)], ttl=LONG))
    assert len(await locks.list("l*", limit=7)) == 7
    assert len(await locks.list("l*", limit=20)) == 20
    assert len(await locks.list("l*")) == 20
    await lease.release()


@case
async def test_prefixes_keep_lists_apart(stage: Stage) -> None:
    plain = await stage.connect()
    shop, bank = await stage.connect(prefix="shop:"), await stage.connect(prefix="bank:")
    leases = [await held(locks.lock(name, ttl=LONG)) for locks, name in ((plain, "p"), (shop, "s"), (bank, "b"))]
    assert await shop.list() == ["s"]
    assert await bank.list() == ["b"]
    assert "p" in await plain.list()
    assert not {"s", "b"} & {*await plain.list()}
    for lease in leases:
        await lease.release()


@pytest.mark.parametrize("side", ["threads", "asyncio"])
def test_nodes_that_cannot_be_asked_are_no_empty_list(side: str) -> None:
    """Else an operator would take a fleet that is down for one in which nothing is held."""
    nowhere = [f"redis://127.0.0.1:{free_port()}" for _ in range(3)]

    async def listed() -> list[str]:
        async with quorumlock.connect_async(nowhere) as locks:
            return await locks.list()

    with pytest.raises(NoQuorum, match="which locks are held: 0 of 3 agreed, 2 needed"):
        asyncio.run(listed()) if side == "asyncio" else quorumlock.connect(nowhere).list()
