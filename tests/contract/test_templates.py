"""The contract of `locked`, continued: names made from the arguments of a call, and calls that are left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from quorumlock import AcquireTimeout, ConfigurationError, LockHeld, NoQuorum

from .stage import LONG, Stage, case, held


@case
async def test_a_template_is_filled_from_the_arguments(stage: Stage) -> None:
    locks = await stage.connect()
    seen: list[str] = []

    def work(order_id: Any, *rest: Any, region: str = "eu", **more: Any) -> None:
        seen.extend(name for name in EXPECTED if any(stage.ground.holders(name)))

    for template, args, kwargs, name in FILLED:
        seen.clear()
        await locks.locked(template, ttl=LONG)(stage.function(work))(*args, **kwargs)
        assert seen == [name], (template, args, kwargs)
        await stage.agrees(name, None)


FILLED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("orders:{order_id}", (42,), {}, "orders:42"),
    ("orders:{order_id}", (), {"order_id": "x"}, "orders:x"),
    ("{region}:{order_id}", (7,), {}, "eu:7"),
    ("{region}:{order_id}", (7,), {"region": "us"}, "us:7"),
    ("user:{order_id.user.id}", (SimpleNamespace(user=SimpleNamespace(id=3)),), {}, "user:3"),
    ("item:{order_id[0]}", (["first", "second"],), {}, "item:first"),
    ("{order_id:04d}", (5,), {}, "0005"),
    ("tenant:{tenant}", (1,), {"tenant": "acme"}, "tenant:acme"),
    ("rest:{rest[1]}", (1, "a", "b"), {}, "rest:b"),
]
EXPECTED = [name for _, _, _, name in FILLED]


@case
async def test_a_template_that_asks_for_more_is_refused_when_it_decorates(stage: Stage) -> None:
    locks = await stage.connect()

    def work(order_id: int, region: str = "eu") -> None:
        raise AssertionError("called")

    for template in (
        "{order}",
        "{order.id}",
        "{}",
        "{0}",
        "{order_id}:{user[0]}",
        "{",
        "}",
        "{order_id",
        "{!x}",
        "{order_id:{width}}",
    ):
        with pytest.raises(ConfigurationError) as refused:
            locks.locked(template, ttl=LONG)(stage.function(work))
        assert repr(template) in str(refused.value)
    with pytest.raises(ConfigurationError, match=r"asks for 'order'.*order_id, region"):
        locks.locked("{order}", ttl=LONG)(stage.function(work))


@case
async def test_a_call_from_which_no_name_can_be_made_does_not_happen(stage: Stage) -> None:
    locks = await stage.connect()

    def work(order: Any, **more: Any) -> None:
        raise AssertionError("called")

    for template, args in (
        ("{order.id}", (1,)),
        ("{order[3]}", ([],)),
        ("{order[key]}", ({},)),
        ("{order:04d}", ("text",)),
        ("{missing}", (1,)),
        ("{order}", ("",)),
        ("{order}", ("ql:mine",)),
        ("{order}", ("a*b",)),
        ("{order}", ("x" * 2000,)),
    ):
        with pytest.raises(ConfigurationError):
            await locks.locked(template, ttl=LONG)(stage.function(work))(*args)
    with pytest.raises(TypeError):
        await locks.locked("{order}", ttl=LONG)(stage.function(work))()
    assert await locks.list() == []


@case
async def test_a_busy_call_is_left_out(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    called: list[int] = []

    def work(order: int) -> str:
        called.append(order)
        return "done"

    skipping = theirs.locked("orders:{order}", ttl=LONG, on_busy="skip")(stage.function(work))
    lease = await held(ours.lock("orders:1", ttl=LONG))
    assert await skipping(1) is None
    assert await skipping(2) == "done"
    assert called == [2]
    await lease.release()
    assert await skipping(1) == "done"
    assert called == [2, 1]
    await stage.agrees("orders:1", None)


@case
async def test_with_a_timeout_a_busy_call_waits_before_it_is_left_out(stage: Stage) -> None:
    ours, theirs = await stage.connect(), await stage.connect()
    called: list[None] = []
    work = stage.function(lambda: called.append(None))
    lease = await held(ours.lock("a", ttl=LONG))
    assert await theirs.locked("a", ttl=LONG, timeout=0.1, on_busy="skip")(work)() is None
    with pytest.raises(AcquireTimeout):
        await theirs.locked("a", ttl=LONG, timeout=0.1, on_busy="raise")(work)()
    with pytest.raises(LockHeld):
        await theirs.locked("a", ttl=LONG, timeout=0)(work)()
    assert called == []
    await lease.release()
    await theirs.locked("a", ttl=LONG, timeout=5, on_busy="skip")(work)()
    assert called == [None]


@case
async def test_what_a_call_raises_is_not_busy(stage: Stage) -> None:
    """Not even if it is what a busy lock would raise; and the lock is given back."""
    locks = await stage.connect()

    def work() -> None:
        raise LockHeld("another lock, within")

    with pytest.raises(LockHeld, match="within"):
        await locks.locked("a", ttl=LONG, on_busy="skip")(stage.function(work))()
    await stage.agrees("a", None)


@pytest.mark.redis_keys
@case
async def test_a_broken_fleet_is_not_busy(stage: Stage) -> None:
    locks = await stage.connect()
    for server in stage.ground.servers:  # type: ignore[attr-defined]
        server.command("HSET", "a", "field", "value")
    with pytest.raises(NoQuorum, match="another kind"):
        await locks.locked("a", ttl=LONG, timeout=0, on_busy="skip")(stage.function(lambda: None))()


@case
async def test_there_are_two_ways_to_be_busy(stage: Stage) -> None:
    locks = await stage.connect()
    for wrong in ("wait", "", "Skip", None, True, 1):
        with pytest.raises(ConfigurationError, match=r"on_busy=.*'raise', 'skip'"):
            locks.locked("a", ttl=LONG, on_busy=wrong)(stage.function(lambda: None))  # type: ignore[arg-type]


@case
async def test_a_reentrant_call_may_be_recursive(stage: Stage) -> None:
    locks = await stage.connect()
    fences: set[int] = set()

    def work(depth: int) -> int:
        fences.add(max(stage.ground.fences("a")))
        return depth

    once = locks.locked("a", ttl=LONG, reentrant=True)(stage.function(work))

    async def told() -> None:
        async with locks.lock("a", ttl=LONG, reentrant=True) as lease:
            for on_busy in ("raise", "skip"):
                again = locks.locked("a", ttl=LONG, reentrant=True, on_busy=on_busy)(stage.function(work))
                assert await again(2) == 2
            assert await once(1) == 1
            lease.check()
            await stage.agrees("a", lease.token)

    await stage.as_owner(told)
    await stage.agrees("a", None)
    assert len(fences) == 1
