"""The contract of cells: a value that changes only for who has seen its last version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import quorumlock
from quorumlock import ConfigurationError, VersionConflict

from .stage import LONG, MAX_TTL, Stage, case, held

MIB = 1024 * 1024


@case
async def test_what_is_set_is_got(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    assert await theirs.cell("c").get() == (None, 0)
    first = await ours.cell("c").set({"step": 1}, 0)
    assert first > 0
    assert await theirs.cell("c").get() == ({"step": 1}, first)
    second = await theirs.cell("c").set({"step": 2}, first)
    assert second > first
    assert await ours.cell("c").get() == ({"step": 2}, second)


@case
async def test_only_who_has_seen_the_last_version_changes_it(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    first = await ours.cell("c").set("one", 0)
    second = await theirs.cell("c").set("two", first)
    for stale in (0, first, second + 1):
        with pytest.raises(VersionConflict, match="'c'"):
            await ours.cell("c").set("three", stale)
    assert await ours.cell("c").get() == ("two", second)
    with pytest.raises(VersionConflict):
        await ours.cell("empty").set("x", first)
    assert await ours.cell("empty").get() == (None, 0)


@case
async def test_bytes_and_json_come_back_as_they_were(stage: Stage) -> None:
    locks = await stage.connect()
    values: list[Any] = [
        b"", b"\x00\xff \r\n", "", "ünï\n", 0, -1.5, True, None, [], [1, [2, {"a": None}]],
        {"k": "v", "": [""]},
    ]  # fmt: skip
    version = 0
    for value in values:
        grown = await locks.cell("c").set(value, version)
        assert grown > version
        version = grown
        assert await locks.cell("c").get() == (value, version)
        assert type((await locks.cell("c").get())[0]) is type(value)


@case
async def test_what_is_no_value_is_refused(stage: Stage) -> None:
    locks = await stage.connect()
    version = await locks.cell("c").set("kept", 0)
    for value in (object(), {1, 2}, float("nan"), {"k": b"bytes"}, {("a",): 1}):
        with pytest.raises(ConfigurationError, match="neither bytes nor JSON"):
            await locks.cell("c").set(value, version)
    for wrong in (-1, 1.0, "1", True, None):
        with pytest.raises(ConfigurationError, match="version="):
            await locks.cell("c").set("x", wrong)  # type: ignore[arg-type]
    assert await locks.cell("c").get() == ("kept", version)


@pytest.mark.takes_time
@case
async def test_a_value_has_at_most_a_mebibyte(stage: Stage) -> None:
    locks = await stage.connect()
    most = b"x" * MIB
    version = await locks.cell("c").set(most, 0)
    assert await locks.cell("c").get() == (most, version)
    for value in (most + b"x", "y" * MIB):
        with pytest.raises(ConfigurationError, match="1 MiB"):
            await locks.cell("c").set(value, version)
    assert (await locks.cell("c").get())[1] == version


@case
async def test_concurrent_updates_lose_nothing(stage: Stage) -> None:
    lockers = [await stage.connect(), await stage.connect(), await stage.connect()]
    versions: list[int] = []

    async def count(index: int) -> None:
        for _ in range(3):
            seen: Any = await lockers[index % 3].cell("c").update(lambda value: [*(value or []), index])
            assert seen[-1] == index
            versions.append((await lockers[index % 3].cell("c").get())[1])

    await asyncio.gather(*(count(index) for index in range(4)))
    value, version = await lockers[0].cell("c").get()
    assert sorted(value) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert version == max(versions)


@case
async def test_an_update_begins_again_where_somebody_came_between(stage: Stage) -> None:
    locks = await stage.connect()
    await locks.cell("c").set(1, 0)
    seen: list[int] = []

    def double(value: int) -> int:
        if not seen:
            with quorumlock.connect(stage.ground.urls, max_ttl=MAX_TTL, node_timeout=2.0) as other:
                other.cell("c").update(lambda value: value + 10)
        seen.append(value)
        return 2 * value

    assert await locks.cell("c").update(double) == 22
    assert seen == [1, 11]
    assert (await locks.cell("c").get())[0] == 22
    seen.clear()
    with pytest.raises(VersionConflict):
        await locks.cell("c").update(double, attempts=1)
    assert (await locks.cell("c").get())[0] == 32


@case
async def test_an_update_that_fails_changes_nothing(stage: Stage) -> None:
    locks = await stage.connect()
    version = await locks.cell("c").set("kept", 0)

    def fail(value: object) -> object:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await locks.cell("c").update(fail)
    for wrong in (0, -1, 1.5, "1"):
        with pytest.raises(ConfigurationError, match="attempts="):
            await locks.cell("c").update(lambda value: value, attempts=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="fn="):
        await locks.cell("c").update("no function")  # type: ignore[arg-type]
    assert await locks.cell("c").get() == ("kept", version)


@case
async def test_a_cell_and_a_lock_of_one_name_are_two_things(stage: Stage) -> None:
    locks = await stage.connect()
    lease = await held(locks.lock("a", ttl=LONG))
    version = await locks.cell("a").set("value", 0)
    await lease.extend()
    await lease.release()
    assert await locks.cell("a").get() == ("value", version)
    await locks.break_("a")
    assert await locks.cell("a").get() == ("value", version)
    assert await locks.list("*") == []


@case
async def test_prefixes_keep_cells_apart(stage: Stage) -> None:
    shop, bank = await stage.connect(prefix="shop:"), await stage.connect(prefix="bank:")
    await shop.cell("c").set("shop", 0)
    await bank.cell("c").set("bank", 0)
    assert (await shop.cell("c").get())[0] == "shop"
    assert (await bank.cell("c").get())[0] == "bank"


@pytest.mark.takes_time
@case
async def test_a_cell_is_forgotten_after_its_ttl_and_its_version_grows(stage: Stage) -> None:
    locks = await stage.connect()
    cell = locks.cell("c", ttl=1.0)
    version = await cell.set("brief", 0)
    await stage.skip(1.0)

    async def forgotten() -> bool:
        found: tuple[object, int] = await cell.get()
        return found == (None, 0)

    assert await stage.until(forgotten)
    with pytest.raises(VersionConflict):
        await cell.set("again", version)
    assert await cell.set("again", 0) > version
