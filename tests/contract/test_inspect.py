"""The contract of looking: who holds a lock, who waits for it, what each node thinks; and which there are."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from quorumlock import (
    AsyncLease,
    AsyncLock,
    AsyncLocker,
    ConfigurationError,
    LeaseLost,
    LockHeld,
    LossReason,
    events,
)
from tests.support.waiting import PATIENCE

from .stage import LONG, Stage, case, held, listen


@case
async def test_a_free_lock(stage: Stage) -> None:
    locks = await stage.connect()
    for _ in range(2):
        seen = await locks.inspect("a")
        assert (seen.name, seen.state, seen.kind, seen.holder) == ("a", "free", None, None)
        assert (seen.holders, seen.waiters) == ((), ())
        assert len(seen.nodes) == stage.count
        assert {view.says for view in seen.nodes} == {"free"}
        await (await held(locks.lock("a", ttl=LONG, note="before"))).release()
        await stage.agrees("a", None)


@case
async def test_a_lock_that_is_held(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    before = time.time()
    lease = await held(ours.lock("a", ttl=LONG, note="nightly, for Zoë"))
    await stage.agrees("a", lease.token)
    for locks in (ours, theirs):
        seen = await locks.inspect("a")
        assert (seen.state, seen.kind, len(seen.holders), seen.waiters) == ("held", "mutex", 1, ())
        holder = seen.holder
        assert holder is not None
        assert holder.host
        assert socket.gethostname().startswith(holder.host)
        assert holder.pid == os.getpid()
        assert holder.where
        assert holder.since is not None
        assert before - 1 < holder.since < time.time() + 1
        assert 0 < holder.remaining <= LONG + 0.01
        assert holder.fence == lease.fence
        assert holder.note == "nightly, for Zoë"
        assert not holder.foreign
        assert lease.token.startswith(holder.token.rstrip("…"))
        for view in seen.nodes:
            assert view.says == "held"
            assert view.fence == lease.fence
            assert 0 < view.remaining <= LONG + 0.01
    await lease.release()


@case
async def test_the_thread_or_task_is_named(stage: Stage) -> None:
    locks = await stage.connect()

    async def told() -> str | None:
        if stage.side == "asyncio":
            task = asyncio.current_task()
            assert task is not None
            task.set_name("the importer")
        async with locks.lock("a", ttl=LONG):
            holder = (await locks.inspect("a")).holder
            return None if holder is None else holder.where

    where = await stage.as_owner(told)
    assert where is not None
    assert where.startswith("the_importer" if stage.side == "asyncio" else "ThreadPoolExecutor-")


@case
async def test_whoever_does_not_identify_itself_is_not_named(stage: Stage) -> None:
    locks = await stage.connect(identify=False)
    lease = await held(locks.lock("a", ttl=LONG, note="n"))
    holder = (await locks.inspect("a")).holder
    assert holder is not None
    assert (holder.host, holder.pid, holder.where, holder.foreign) == (None, None, None, False)
    assert (holder.fence, holder.note) == (lease.fence, "n")
    await lease.release()


KINDS: list[tuple[str, str, Callable[[AsyncLocker], AsyncLock]]] = [
    ("mutex", "a", lambda locks: locks.lock("a", ttl=LONG, note="n")),
    ("write", "a", lambda locks: locks.read_write("a").write(ttl=LONG, note="n")),
    ("slot", "a#0", lambda locks: locks.semaphore("a", 1, ttl=LONG, note="n")),
    ("multi", "a", lambda locks: locks.multi(["a", "b"], ttl=LONG, note="n")),
    ("multi", "b", lambda locks: locks.multi(["a", "b"], ttl=LONG, note="n")),
]


@case
async def test_the_kind_is_told(stage: Stage) -> None:
    locks = await stage.connect()
    for kind, name, lock in KINDS:
        lease = await held(lock(locks))
        seen = await locks.inspect(name)
        assert (seen.state, seen.kind) == ("held", kind)
        assert seen.holder is not None
        assert (seen.holder.note, seen.holder.fence) == ("n", lease.fences[name])
        await lease.release()
    async with locks.election("a", ttl=LONG).lead():
        assert (await locks.inspect("a")).kind == "leader"


@case
async def test_those_who_share_it(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    leases = [await held(locks.read_write("a").read(ttl=LONG)) for locks in (ours, theirs)]
    seen = await ours.inspect("a")
    assert (seen.state, seen.kind, len(seen.holders)) == ("shared", "read", 2)
    assert {holder.pid for holder in seen.holders} == {os.getpid()}
    assert {holder.fence for holder in seen.holders} == {leases[0].fence}
    assert all(0 < holder.remaining <= LONG + 0.01 for holder in seen.holders), seen
    assert sum(view.says == "shared" for view in seen.nodes) > stage.count // 2
    await leases[0].release()
    assert len((await ours.inspect("a")).holders) == 1
    await leases[1].release()
    assert (await ours.inspect("a")).state == "free"


@case
async def test_waiters_stand_in_order(stage: Stage) -> None:
    ours = await stage.connect()
    lease = await held(ours.lock("a", ttl=LONG))
    waiters = []
    for place, kind in enumerate(("read", "write", "read", "read"), 1):
        pair = (await stage.connect()).read_write("a")
        waiters.append(await stage.queue(pair.read(ttl=LONG) if kind == "read" else pair.write(ttl=LONG), place))
    seen = await ours.inspect("a")
    assert [waiter.shares for waiter in seen.waiters] == [True, False, True, True]
    assert {waiter.pid for waiter in seen.waiters} == {os.getpid()}
    assert all(waiter.host for waiter in seen.waiters)
    await lease.release()
    for waiter in waiters:
        await (await asyncio.wait_for(waiter, PATIENCE)).release()
    assert (await ours.inspect("a")).waiters == ()


@case
async def test_a_lock_of_somebody_else_is_foreign(stage: Stage) -> None:
    locks = await stage.connect()
    stage.ground.take("a", 30_000)
    seen = await locks.inspect("a")
    assert (seen.state, seen.kind) == ("held", "foreign")
    holder = seen.holder
    assert holder is not None
    assert holder.foreign
    assert (holder.host, holder.pid, holder.note, holder.since) == (None, None, None, None)
    assert 0 < holder.remaining <= 30.01


@pytest.mark.disagreement
@case
async def test_nodes_that_disagree_are_told_apart(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG, keep=False))
    await stage.agrees("a", lease.token)
    stage.ground.take("a", 30_000, slice(1))
    seen = await locks.inspect("a")
    assert (seen.state, seen.kind) == ("held", "mutex")
    assert len({view.node for view in seen.nodes}) == stage.count
    assert seen.nodes[0].token != seen.nodes[1].token
    minority = stage.count // 2
    stage.ground.delete("a", slice(1, 1 + minority))
    seen = await locks.inspect("a")
    assert (seen.state, seen.holders) == ("contested", ())
    assert [view.says for view in seen.nodes] == ["held"] + ["free"] * minority + ["held"] * minority
    await lease.release()


@case
async def test_no_token_is_shown_whole(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    reader = await held(locks.read_write("b").read(ttl=LONG))
    waiter = await stage.queue((await stage.connect()).lock("a", ttl=LONG), 1)
    for name, token in (("a", lease.token), ("b", reader.token)):
        seen: Any = await locks.inspect(name)
        secret = token.removeprefix("r:")[:12]
        for shown in (repr(seen), str(seen), repr(seen.holder), repr(seen.nodes), repr(seen.waiters)):
            assert secret not in shown
    await lease.release()
    await reader.release()
    await (await waiter).release()


@case
async def test_a_lock_that_stays_closed(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG, at_least=LONG))
    await lease.release()
    seen = await locks.inspect("a")
    assert (seen.state, seen.kind, seen.holders) == ("closed", None, ())


@case
async def test_a_break_is_told_to_all_who_listen(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    story = listen(theirs)
    for name, lock in (("a", ours.lock("a", ttl=LONG)), ("b", ours.multi(["a", "b"], ttl=LONG))):
        lease: AsyncLease = await held(lock)
        await theirs.break_(name)
        with pytest.raises(LeaseLost) as lost:
            await lease.extend()
        assert lost.value.reason is LossReason.BROKEN
        await lease.release()
    broken = [event for event in story if isinstance(event, events.Broken)]
    assert [event.name for event in broken] == ["a", "b"]
    assert all(str(os.getpid()) in event.by for event in broken)


@case
async def test_only_the_hold_that_was_seen_is_broken(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    first = await held(ours.lock("a", ttl=LONG))
    await stage.spread(first)
    seen = (await theirs.inspect("a")).fence
    assert seen == first.fence
    await first.release()
    await stage.agrees("a", None)
    assert (await theirs.inspect("a")).fence is None
    second = await held(ours.lock("a", ttl=LONG))
    await stage.spread(second)
    with pytest.raises(LockHeld, match="left alone"):
        await theirs.break_("a", fence=seen)
    await stage.agrees("a", second.token)
    await second.extend()
    await theirs.break_("a", fence=(await theirs.inspect("a")).fence)
    await stage.agrees("a", None)
    with pytest.raises(LeaseLost):
        await second.extend()
    third = await held(ours.lock("a", ttl=LONG))
    assert third.fence > second.fence
    await third.release()


@case
async def test_readers_have_one_fence_and_are_broken_together(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    readers = [await held(ours.read_write("a").read(ttl=LONG))]
    seen = (await theirs.inspect("a")).fence
    readers.append(await held(theirs.read_write("a").read(ttl=LONG)))
    await theirs.break_("a", fence=seen)
    for reader in readers:
        with pytest.raises(LeaseLost):
            await reader.extend()
    writer = await held(ours.read_write("a").write(ttl=LONG))
    await stage.spread(writer)
    with pytest.raises(LockHeld):
        await theirs.break_("a", fence=seen)
    await writer.extend()
    await writer.release()


@case
async def test_a_fence_to_break_is_a_number(stage: Stage) -> None:
    locks = await stage.connect()
    for fence in (0, -1, True, "1", 1.0, 2**53 + 1):
        with pytest.raises(ConfigurationError, match="fence"):
            await locks.break_("a", fence=fence)  # type: ignore[arg-type]


@case
async def test_a_break_lets_the_next_in(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect_patient()
    lease = await held(ours.lock("a", ttl=LONG, keep=False))
    waiter = await stage.queue(theirs.lock("a", ttl=LONG), 1)
    await ours.break_("a")
    new = await asyncio.wait_for(waiter, PATIENCE)
    assert new.fence > lease.fence
    await new.release()
    await lease.release()
