"""The contract of read-write locks: many share one, or somebody has it alone."""

from __future__ import annotations

import asyncio

import pytest

from quorumlock import ConfigurationError
from tests.support.waiting import PATIENCE

from .stage import LONG, Stage, case, held


@case
async def test_many_share_it_and_nobody_has_it_alone_meanwhile(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    readers = [await held(locks.read_write("a").read(ttl=LONG)) for locks in (ours, theirs, ours, theirs)]
    assert len({lease.token for lease in readers}) == 4
    for lease in readers:
        for locks in (ours, theirs):
            assert await locks.read_write("a").write(ttl=LONG).try_acquire() is None
            assert await locks.lock("a", ttl=LONG).try_acquire() is None
        lease.check()
        await lease.extend()
        await lease.release()
    writer = await held(theirs.read_write("a").write(ttl=LONG))
    await writer.release()


@pytest.mark.parametrize("kind", ["write", "lock", "multi"])
def test_who_has_it_alone_excludes_readers(stage: Stage, kind: str) -> None:
    """A writer has the lock of that name, and so has whoever takes that."""

    async def told(stage: Stage) -> None:
        ours, theirs = await stage.connect(), await stage.connect()
        lock = {
            "write": lambda: ours.read_write("a").write(ttl=LONG),
            "lock": lambda: ours.lock("a", ttl=LONG),
            "multi": lambda: ours.multi(["a", "b"], ttl=LONG),
        }[kind]()
        lease = await held(lock)
        for locks in (ours, theirs):
            assert await locks.read_write("a").read(ttl=LONG).try_acquire() is None
            assert await locks.read_write("a").write(ttl=LONG).try_acquire() is None
            assert await locks.lock("a", ttl=LONG).try_acquire() is None
        await lease.release()
        reader = await held(theirs.read_write("a").read(ttl=LONG))
        assert await lock.try_acquire() is None
        await reader.release()

    stage.play(told)


@case
async def test_locked_tells_whether_it_could_be_had(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    pair = theirs.read_write("a")
    assert not await pair.read(ttl=LONG).locked()
    assert not await pair.write(ttl=LONG).locked()
    reader = await held(ours.read_write("a").read(ttl=LONG))
    assert not await pair.read(ttl=LONG).locked()
    assert await pair.write(ttl=LONG).locked()
    assert await theirs.lock("a", ttl=LONG).locked()
    await reader.release()
    writer = await held(ours.read_write("a").write(ttl=LONG))
    assert await pair.read(ttl=LONG).locked()
    assert await pair.write(ttl=LONG).locked()
    await writer.release()


@case
async def test_readers_have_the_fence_of_the_last_who_had_it_alone(stage: Stage) -> None:
    """What they read was written under it. They need no order among themselves, so it does not grow."""
    ours, theirs = await stage.connect(), await stage.connect()
    first = await held(ours.read_write("a").read(ttl=LONG))
    assert first.fence > 0
    await first.release()
    writer = await held(ours.read_write("a").write(ttl=LONG))
    assert writer.fence > first.fence
    await writer.release()
    readers = [await held(locks.read_write("a").read(ttl=LONG)) for locks in (ours, theirs)]
    assert {lease.fence for lease in readers} == {writer.fence}
    for lease in readers:
        await lease.release()
    plain = await held(theirs.lock("a", ttl=LONG))
    assert plain.fence > writer.fence
    await plain.release()


@pytest.mark.disagreement
@case
async def test_the_fence_of_a_reader_is_known_to_a_majority(stage: Stage) -> None:
    """Else a later writer, who meets only nodes that do not know of it, could have a lower one."""
    locks = await stage.connect()
    await (await held(locks.read_write("a").write(ttl=LONG))).release()
    await stage.agrees("a", None)
    # An attempt that fails raises the fence where it was granted: on one node.
    stage.ground.take("a", 30_000, slice(1, None))
    assert await locks.lock("a", ttl=LONG).try_acquire() is None
    stage.ground.delete("a", slice(1, None))
    await stage.agrees("a", None)
    assert await stage.until(lambda: len(set(stage.ground.fences("a"))) == 2)
    reader = await held(locks.read_write("a").read(ttl=LONG))
    knowing = sum(fence >= reader.fence for fence in stage.ground.fences("a"))
    assert knowing > stage.count // 2, (reader.fence, stage.ground.fences("a"))
    await reader.release()


@case
async def test_a_waiting_writer_is_not_overtaken(stage: Stage) -> None:
    ours, theirs, others = await stage.connect(), await stage.connect_patient(), await stage.connect()
    reader = await held(ours.read_write("a").read(ttl=LONG))
    writer = await stage.queue(theirs.read_write("a").write(ttl=LONG), 1)
    assert await ours.read_write("a").read(ttl=LONG).try_acquire() is None, "it came later than the writer"
    later = await stage.queue(others.read_write("a").read(ttl=LONG), 2)
    await reader.release()
    alone = await asyncio.wait_for(writer, PATIENCE)
    assert await ours.read_write("a").read(ttl=LONG).try_acquire() is None
    assert not later.done()
    await alone.release()
    shared = await asyncio.wait_for(later, PATIENCE)
    assert shared.fence == alone.fence
    await shared.release()


@case
async def test_all_who_wait_to_share_are_let_in_together(stage: Stage) -> None:
    ours = await stage.connect()
    writer = await held(ours.read_write("a").write(ttl=LONG))
    lockers = [await stage.connect_patient() for _ in range(3)]
    waiters = [
        await stage.queue(locks.read_write("a").read(ttl=LONG), place) for place, locks in enumerate(lockers, 1)
    ]
    await writer.release()
    readers = await asyncio.wait_for(asyncio.gather(*waiters), PATIENCE)
    for lease in readers:
        lease.check()
        await lease.release()


@pytest.mark.takes_time
@case
async def test_readers_are_not_starved_by_a_stream_of_writers(stage: Stage) -> None:
    pair = [await stage.connect(), await stage.connect()]
    theirs = await stage.connect()
    story: list[tuple[int, str]] = []
    stop = False

    async def write(index: int) -> None:
        while not stop:
            lease = await pair[index].read_write("a").write(ttl=LONG).acquire(timeout=30)
            story.append((lease.fence, "write"))
            await asyncio.sleep(0)  # in memory nothing of this waits for anything
            await lease.release()

    writers = [asyncio.create_task(write(index)) for index in range(2)]
    assert await stage.until(lambda: len(story) > 3)
    for _ in range(3):
        reader = await theirs.read_write("a").read(ttl=LONG).acquire(timeout=30)
        story.append((reader.fence, "read"))
        assert not any(writer.done() for writer in writers)
        await reader.release()
    stop = True
    await asyncio.gather(*writers)
    assert [kind for _, kind in story].count("read") == 3
    assert [fence for fence, _ in story] == sorted(fence for fence, _ in story), "from holder to holder they grow"
    written = [fence for fence, kind in story if kind == "write"]
    assert len(set(written)) == len(written)


@case
async def test_an_upgrade_is_refused_because_it_would_wait_for_itself(stage: Stage) -> None:
    locks = await stage.connect()
    pair = locks.read_write("a")

    async def told() -> None:
        reader = await pair.read(ttl=LONG).acquire()
        with pytest.raises(ConfigurationError, match="'a': this write would wait for ever for the read lease"):
            await pair.write(ttl=LONG).acquire()
        assert await pair.write(ttl=LONG).try_acquire() is None, "who does not wait is told that it is busy"
        reader.check()
        await reader.release()
        writer = await pair.write(ttl=LONG).acquire(timeout=5)
        with pytest.raises(ConfigurationError, match="downgrade"):
            await pair.read(ttl=LONG).acquire()
        writer.check()
        await writer.release()

    await stage.as_owner(told)


@case
async def test_an_upgrade_is_refused_while_any_of_several_leases_is_held(stage: Stage) -> None:
    locks = await stage.connect()
    pair = locks.read_write("a")

    async def told() -> None:
        first, second = await held(pair.read(ttl=LONG)), await held(pair.read(ttl=LONG))
        await second.release()
        with pytest.raises(ConfigurationError, match="would wait for ever"):
            await pair.write(ttl=LONG).acquire(timeout=1)
        await first.release()

    await stage.as_owner(told)


@case
async def test_another_owner_may_wait_to_write(stage: Stage) -> None:
    """Only who would wait for itself is refused."""
    locks = await stage.connect()
    pair = locks.read_write("a")

    async def read() -> None:
        async with pair.read(ttl=LONG):
            writer = asyncio.create_task(stage.as_owner(lambda: pair.write(ttl=LONG).acquire(timeout=30)))
            await stage.wait_for_waiters("a", 1)
        await (await writer).release()

    await stage.as_owner(read)
