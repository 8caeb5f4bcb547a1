"""`survey`: all that is held, in a few round trips, and of each lock what `inspect` tells."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

import quorumlock
from quorumlock import Lock, Locker, NoQuorum
from quorumlock.core import looking
from quorumlock.core.effects import Round
from quorumlock.core.fleet import Fleet
from quorumlock.core.requests import InspectMany
from quorumlock.core.votes import GRANTED, Answer, Cause, Sight, unknown
from quorumlock.inspecting import Inspection
from quorumlock.lab.servers import Servers, free_port
from tests.conftest import server_kinds
from tests.support.waiting import eventually

from .conftest import FLEETS, Place, named

pytestmark = pytest.mark.real_time


def steady(seen: Inspection) -> Inspection:
    """What does not change between two looks."""
    return dataclasses.replace(
        seen,
        holders=tuple(dataclasses.replace(one, remaining=0.0) for one in seen.holders),
        nodes=tuple(dataclasses.replace(one, remaining=0.0) for one in seen.nodes),
    )


@contextmanager
def waiting(lock: Lock, looker: Locker, count: int) -> Iterator[None]:
    """Somebody who waits for a lock, and is known to: so many do then."""
    thread = threading.Thread(target=lambda: lock.acquire(timeout=30).release())
    thread.start()
    try:
        assert eventually(lambda: len(looker.inspect(lock.name).waiters) == count, 10)
        yield
    finally:
        looker.break_(lock.name)
        thread.join(30)


def agree(locks: Locker, names: list[str]) -> list[Inspection]:
    """The survey, which says of these locks, and of no others, what inspect says."""

    def same() -> bool:
        looked = [steady(locks.inspect(name)) for name in names]
        return [steady(one) for one in locks.survey()] == looked  # a minority may just be served

    assert eventually(same, 10), (locks.survey(), [locks.inspect(name) for name in names])
    found = locks.survey()
    assert all(0 < holder.remaining <= 30 for one in found for holder in one.holders)
    return found


def test_it_says_what_inspect_says(place: Place) -> None:
    ours, theirs = place.connect(), place.connect()
    assert ours.survey() == []
    ours.lock("stranger", ttl=20).acquire().release()
    place.ground.take("stranger", 20_000)
    names = ["busy", "closed", "doc", "m", "n", "plain", "s#0", "s#1", "stranger"]
    with ExitStack() as stack:
        for lock in (
            ours.lock("plain", ttl=20, note="nightly, for Zoë"), ours.lock("busy", ttl=20, fair=True),
            ours.read_write("doc").read(ttl=20), theirs.read_write("doc").read(ttl=20),
            ours.semaphore("s", 3, ttl=20), theirs.semaphore("s", 3, ttl=20), theirs.multi(["m", "n"], ttl=20),
        ):  # fmt: skip
            lease = lock.acquire()
            stack.callback(lease.release)
        slots = [one.name for one in theirs.survey("s#*")]
        names = sorted({*names} - {"s#0", "s#1"} | {*slots})
        assert len(slots) == 2
        with ours.lock("closed", ttl=20, at_least=20):
            pass
        stack.enter_context(waiting(theirs.lock("busy", ttl=20, fair=True), ours, 1))
        stack.enter_context(waiting(place.connect().lock("busy", ttl=20, fair=True), ours, 2))
        found = {one.name: one for one in agree(theirs, names)}
        assert {one.kind for one in found.values()} == {"mutex", "read", "slot", "multi", "foreign", None}
        assert (found["closed"].state, found["stranger"].state, found["doc"].state) == ("closed", "held", "shared")
        assert len(found["doc"].holders) == 2
        assert len(found["busy"].waiters) == 2
        assert found["plain"].holder is not None
        assert found["plain"].holder.note == "nightly, for Zoë"
        assert [one.name for one in theirs.survey("?")] == ["m", "n"]
        assert [one.name for one in theirs.survey(limit=2)] == names[:2]
    for name in ("stranger", "closed"):
        ours.break_(name)
    assert eventually(lambda: ours.survey() == [], 10)


@pytest.mark.parametrize("place", FLEETS, indirect=True, ids=named)
def test_nodes_that_disagree(place: Place) -> None:
    locks = place.connect()
    with ExitStack() as stack:
        for name in ("a", "b", "c", "d"):
            stack.enter_context(locks.lock(name, ttl=20, keep=False))
        place.ground.delete("a", slice(0, 1))  # a majority has it
        place.ground.delete("b", slice(0, 2))  # a majority has nothing: it is free
        place.ground.take("c", 20_000, slice(0, 1))
        place.ground.delete("c", slice(1, 2))
        place.ground.delete("d", slice(0, 3))
        found = {one.name: one for one in agree(locks, ["a", "c"])}
        assert found["a"].nodes[0].says == "free"
        assert found["c"].state == "contested"


def test_asyncio(place: Place) -> None:
    place.connect()

    async def seen() -> list[Inspection]:
        options = {"max_ttl": 30.0, "node_timeout": 1.0}
        async with (
            quorumlock.connect_async(place.ground.urls, **options) as locks,  # type: ignore[arg-type]
            locks.lock("a", ttl=20),
            locks.read_write("b").read(ttl=20),
        ):
            found = await locks.survey()
            for one in found:
                assert steady(one) == steady(await locks.inspect(one.name))
            return found

    assert [(one.name, one.kind) for one in asyncio.run(seen())] == [("a", "mutex"), ("b", "read")]


def test_something_else_under_such_a_name_hides_nothing(servers: Servers, connect: Callable[..., Locker]) -> None:
    locks = connect(servers.urls[:3], max_ttl=30)
    locks.lock("a").acquire().release()
    for server in servers.servers[:3]:
        server.command("DEL", "a")
        server.command("HSET", "a", "field", "value")
    with locks.lock("b"):
        assert eventually(lambda: locks.list() == ["a", "b"], 10)
        assert [one.name for one in locks.survey()] == ["b"]
        with pytest.raises(NoQuorum, match="key of another kind"):
            locks.inspect("a")


def test_long_queues_are_told_in_parts(servers: Servers, connect: Callable[..., Locker]) -> None:
    locks = connect(servers.urls[:3], max_ttl=30, node_timeout=1.0)
    names = [f"q{index}" for index in range(7)]
    with locks.multi(names, ttl=20):
        for server in servers.servers[:3]:
            for name in names:
                waiters = [word for place in range(1100) for word in (str(place), f"locker:{place:04}@host:7")]
                server.command("ZADD", f"ql:queue:{{{name}}}", *waiters)
        found = locks.survey()
        assert [one.name for one in found] == names
        assert {len(one.waiters) for one in found} == {1000}


def test_five_thousand_locks_take_few_round_trips(servers: Servers, connect: Callable[..., Locker]) -> None:
    locks = connect(servers.urls[:3], max_ttl=60, node_timeout=1.0)
    with ExitStack() as stack:
        for some in range(50):
            names = [f"jobs:{100 * some + index:04}" for index in range(100)]
            stack.enter_context(locks.multi(names, ttl=50, keep=False))
        for server in servers.servers:
            server.command("CONFIG", "RESETSTAT")
        began = time.monotonic()
        found = locks.survey("jobs:*", limit=5000)
        took = time.monotonic() - began
        assert [one.name for one in found] == [f"jobs:{index:04}" for index in range(5000)]
        assert {one.state for one in found} == {"held"}
        asked = servers[0].command("INFO", "commandstats").decode().partition("cmdstat_evalsha:calls=")[2]
        assert int(asked.partition(",")[0]) <= 60
        assert took < 20, "some tenths of a second, on a machine with nothing else to do"


def test_nodes_that_cannot_be_asked_are_no_empty_survey() -> None:
    nowhere = [f"redis://127.0.0.1:{free_port()}" for _ in range(3)]
    with quorumlock.connect(nowhere) as locks, pytest.raises(NoQuorum, match="which locks are held"):
        locks.survey()


def test_a_majority_that_falls_silent_halfway_is_told_of() -> None:
    """Between the names and what is known of them: nothing is made of the answer of a few."""
    fleet = Fleet(("x", "y", "z"), time.monotonic, time.time, lambda: 0.5, lambda _: "t")
    steps = looking.survey(fleet, "*", 10)

    def answered() -> None:
        for effect in steps:
            assert isinstance(effect, Round)
            for node, request in enumerate(effect.requests):
                if isinstance(request, InspectMany) and node:
                    effect.tally.cast(node, unknown(Cause.SILENT))
                elif isinstance(request, InspectMany):
                    sight = Sight("t" * 40, 900, 1, 0, "", "", (), ())
                    part = Answer(GRANTED, Cause.AGREED, sight=sight)
                    effect.tally.cast(node, Answer(GRANTED, Cause.AGREED, parts=(part,)))
                else:
                    effect.tally.cast(node, Answer(GRANTED, Cause.AGREED, names=("0", "a")))

    with pytest.raises(NoQuorum, match="no majority could tell who holds"):
        answered()


@pytest.mark.parametrize("kind", server_kinds()[:1], indirect=True)
def test_nodes_that_fall_silent_are_told_of(
    make_servers: Callable[..., Servers], connect: Callable[..., Locker]
) -> None:
    own = make_servers(3)
    locks = connect(own, max_ttl=30, node_timeout=0.1)  # a look waits for ten times that
    with locks.lock("a", ttl=20, keep=False):
        own[2].pause()
        (seen,) = locks.survey()
        assert seen.state == "held"
        assert [view.says for view in seen.nodes[:2]] == ["held", "held"]
        assert seen.nodes[2].says != "held"
        own[1].pause()
        with pytest.raises(NoQuorum):
            locks.survey()
        own[1].resume()
        own[2].resume()
