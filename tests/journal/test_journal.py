"""The journal, on every engine: each event once, with who and which fence; nothing of it without being asked."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import pytest

import quorumlock
from quorumlock import ConfigurationError, Locker, NoQuorum, StaleFence
from quorumlock.engines.redis import scripts
from quorumlock.journal import Entry
from quorumlock.lab.servers import Servers, free_port
from tests.live.tools import pttl
from tests.support.waiting import eventually

from .conftest import FLEETS, Place, named

pytestmark = pytest.mark.real_time


def told(locks: Locker, count: int) -> tuple[Entry, ...]:
    """The journal, when there are so many entries in it: a minority of nodes may still be about to write."""
    assert eventually(lambda: len(locks.journal().entries) >= count, 10), locks.journal()
    entries = locks.journal().entries
    assert len(entries) == count, entries
    return entries


def words(entries: tuple[Entry, ...]) -> list[tuple[str, str]]:
    return [(entry.what, entry.name) for entry in entries]


def test_what_happened_to_locks(place: Place) -> None:
    locks, onlooker = place.connect(journal=1000), place.connect()
    began = time.time()
    with locks.lock("a", ttl=20, note="nightly, for Zoë") as lease:
        at_first = lease.remaining()
        assert eventually(lambda: lease.remaining() < at_first - 0.05)
    first = told(onlooker, 2)
    assert words(first) == [("acquired", "a"), ("released", "a")]
    assert {entry.fence for entry in first} == {lease.fence}
    assert {entry.who.partition(":")[2] for entry in first} == {str(os.getpid())}
    assert all(began - 2 < entry.at < time.time() + 2 for entry in first)
    assert first[0].detail == "nightly, for Zoë"
    assert 0.04 < float(first[1].detail.split()[1]) < 10
    assert lease.token[:20] not in str(first)
    with locks.lock("a", ttl=20):
        pass  # what was given back has not expired
    assert words(told(onlooker, 4))[2:] == words(first)
    with locks.multi(["m", "n"], ttl=20), locks.semaphore("s", 1, ttl=20):
        pass
    assert sorted(words(told(onlooker, 10))[4:]) == [
        ("acquired", "m"), ("acquired", "n"), ("acquired", "s#0"),
        ("released", "m"), ("released", "n"), ("released", "s#0"),
    ]  # fmt: skip


def test_those_who_share(place: Place) -> None:
    locks = place.connect(journal=1000)
    pair = locks.read_write("doc")
    with pair.read(ttl=20), pair.read(ttl=20):
        pass
    entries = told(locks, 4)
    assert [entry.what for entry in entries] == ["acquired", "acquired", "released", "released"]
    assert {entry.detail for entry in entries[:2]} == {"read"}
    pair.downgrade(pair.write(ttl=20).acquire()).release()
    assert words(told(locks, 8))[4:] == [(what, "doc") for what in ("acquired", "released", "acquired", "released")]
    assert [entry.detail for entry in told(locks, 8)[4:7:2]] == ["write", "read"]


def test_what_expired_is_told_when_it_is_noticed(place: Place) -> None:
    locks = place.connect(journal=1000)
    lost = [locks.lock(name, ttl=0.3, keep=False).acquire() for name in ("a", "b", "c")]
    assert eventually(lambda: {holder for name in "abc" for holder in place.ground.holders(name)} == {None})
    assert words(told(locks, 3)) == [("acquired", name) for name in "abc"]
    locks.lock("a", ttl=20).acquire().release()  # somebody else is granted it
    lost[1].release()  # or it is released late
    locks.read_write("c").read(ttl=20).acquire().release()
    assert eventually(lambda: len(locks.journal().entries) == 10, 10), locks.journal()
    entries = locks.journal().entries
    expired = [entry for entry in entries if entry.what == "expired"]
    assert [entry.name for entry in expired] == ["a", "b", "c"]
    assert [entry.fence for entry in expired] == [lease.fence for lease in lost]
    assert all(0.3 <= float(entry.detail.split()[1]) < 20 for entry in expired)
    assert words(entries)[3:5] == [("expired", "a"), ("acquired", "a")]


def test_who_broke_it_and_who_was_refused(place: Place) -> None:
    locks, operator = place.connect(journal=1000), place.connect(journal=1000)
    lease = locks.lock("a", ttl=20, keep=False).acquire()
    operator.break_("a")
    operator.break_("a")  # of a lock that is free there is nothing to tell
    operator.report_refusal("a", StaleFence("too late", lease.fence, lease.fence + 1))
    place.connect().report_refusal("a", StaleFence("nobody writes that down", 1, 2))
    lease.release()
    _, broken, refused = told(locks, 3)
    assert (broken.what, broken.name, broken.fence) == ("broken", "a", lease.fence)
    assert broken.detail == f"was held by {broken.who}, MainThread"
    assert (refused.what, refused.fence, refused.detail) == (
        "refused", lease.fence, f"a guard had seen {lease.fence + 1}",
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match="StaleFence"):
        operator.report_refusal("a", ValueError())  # type: ignore[arg-type]


def test_it_is_read_page_by_page(place: Place) -> None:
    locks, reader = place.connect(journal=1000), place.connect()
    start = reader.journal()
    assert (start.entries, start.kept) == ((), False)
    for index in range(6):
        with locks.lock(f"n{index}", ttl=20):
            pass
    told(reader, 12)
    seen: list[Entry] = []
    cursor = start.cursor
    while len(seen) < 12:
        page = reader.journal(cursor, limit=5)
        assert page.kept
        assert 0 < len(page.entries) <= 5
        seen += page.entries
        cursor = page.cursor
    assert tuple(seen) == reader.journal().entries
    assert reader.journal(cursor).entries == ()
    assert reader.journal(limit=2).entries == tuple(seen[-2:])
    with locks.lock("later", ttl=20):
        assert eventually(lambda: reader.journal(cursor).entries != (), 10)
    for wrong in ("", "x", cursor + "_", "1-1." if place.count > 1 else "1-1_1-1."):
        with pytest.raises(ConfigurationError, match="no cursor"):
            reader.journal(wrong)


def test_asyncio(place: Place) -> None:
    place.connect()

    async def play() -> tuple[Entry, ...]:
        options = {"max_ttl": 30.0, "node_timeout": 1.0, "journal": 100}
        async with quorumlock.connect_async(place.ground.urls, **options) as locks:  # type: ignore[arg-type]
            lease = await locks.lock("a", ttl=20, keep=False).acquire()
            await locks.break_("a")
            await locks.report_refusal("a", StaleFence("", 1, 2))
            await lease.release()
            return (await locks.journal()).entries

    seen = asyncio.run(play())
    entries = told(place.made[0], 3)
    assert words(entries) == [("acquired", "a"), ("broken", "a"), ("refused", "a")]
    assert words(seen) == words(entries[: len(seen)])


def test_without_being_asked_nothing_is_written(place: Place) -> None:
    locks = place.connect()
    lease = locks.lock("a", ttl=20, keep=False).acquire()
    with locks.read_write("b").read(ttl=20), locks.multi(["c", "d"], ttl=20):
        locks.break_("a")
    lease.release()
    assert (locks.journal().entries, locks.journal().kept) == ((), False)


def test_prefixes_have_journals_of_their_own(place: Place) -> None:
    shop = place.connect(journal=1000)
    bank = quorumlock.connect(place.ground.urls, prefix="bank:", journal=1000, max_ttl=30, node_timeout=1)
    place.made.append(bank)
    if place.engine not in ("memory", "sqlite"):
        bank.init_fleet()
    for locks, name in ((shop, "s"), (bank, "b")):
        locks.lock(name, ttl=20).acquire().release()
    assert words(told(shop, 2)) == [("acquired", "s"), ("released", "s")]
    assert words(told(bank, 2)) == [("acquired", "b"), ("released", "b")]
    assert shop.list() == bank.list() == []


def test_it_is_capped(place: Place) -> None:
    locks = place.connect(journal=100)
    for index in range(200):
        locks.lock(f"n{index}", ttl=20).acquire().release()
    entries = locks.journal(limit=1000).entries
    assert 100 <= len(entries) <= 300
    assert entries[-1].name == "n199"


@pytest.mark.parametrize("place", FLEETS, indirect=True, ids=named)
def test_what_a_minority_says_is_shown_once_and_told_apart(place: Place) -> None:
    locks = place.connect(journal=1000)
    locks.lock("a", ttl=20).acquire().release()
    told(locks, 2)
    place.ground.take("a", 20_000, slice(0, 2))
    assert locks.lock("a", ttl=20).try_acquire() is None
    assert eventually(lambda: len(locks.journal().entries) == 4, 10), locks.journal()
    # By themselves: where a minority's stand among what only others have written, clocks tell.
    attempt, undone = (one for one in locks.journal().entries if "on 1 of 3 nodes" in one.detail)
    assert (attempt.what, attempt.detail) == ("acquired", "on 1 of 3 nodes")
    assert (undone.what, undone.detail.split(", ")[1:]) == ("released", ["given up", "on 1 of 3 nodes"])


@pytest.mark.parametrize("journal", [0, -1, True, 1.5, "1000", 10**9])
def test_a_journal_has_a_size(journal: object) -> None:
    with pytest.raises(ConfigurationError, match="journal="):
        quorumlock.connect("memory://", journal=journal)  # type: ignore[arg-type]


def test_all_keys_live_for_a_while(servers: Servers, connect: Callable[..., Locker]) -> None:
    locks = connect(servers.urls[:1], journal=1000, max_ttl=30)
    with locks.lock("a", ttl=20), locks.read_write("b").read(ttl=20), locks.semaphore("s", 2, ttl=20):
        keys = servers[0].command("KEYS", "*").decode().split("\r\n")[2::2]
        assert {"ql:journal", "ql:last:{a}"} <= {*keys}
        assert [key for key in keys if pttl(servers[0], key) < 0] == ["ql:node"]


def commands(servers: Servers) -> dict[str, int]:
    """How often the first server has executed each command."""
    lines = servers[0].command("INFO", "commandstats").decode().split("\r\n")
    found = [line.removeprefix("cmdstat_").split(":calls=") for line in lines if line.startswith("cmdstat_")]
    return {name: int(rest.partition(",")[0]) for name, rest in found}


def test_off_it_costs_no_command_and_on_some(servers: Servers, connect: Callable[..., Locker]) -> None:
    plain = connect(servers.urls[:1], max_ttl=30)
    noted = connect(servers.urls[:1], max_ttl=30, journal=1000)
    spent = []
    for locks in (plain, noted):
        locks.lock("a", ttl=20).acquire().release()
        servers[0].command("CONFIG", "RESETSTAT")
        for _ in range(10):
            locks.lock("a", ttl=20, keep=False).acquire().release()
        counted = commands(servers)
        spent.append({name: count for name, count in counted.items() if not name.startswith(("config", "info"))})
    off, on = spent
    assert not {"xadd", "pexpire", "xrange"} & off.keys()
    assert on["evalsha"] == off["evalsha"]
    assert (on["xadd"], on["pexpire"]) == (20, 20)
    assert sum(on.values()) - sum(off.values()) == 80, "eight for a pair: get, set or del, xadd, pexpire"


def test_off_the_lines_about_it_are_comments() -> None:
    for name, script in vars(scripts).items():
        if isinstance(script, scripts.Script):
            lines = [line for line in script.source.splitlines() if not line.lstrip().startswith("--")]
            assert ("note" in "\n".join(lines)) is (name.startswith("NOTED_") or name == "REFUSED"), name


@pytest.mark.parametrize("denied", ["-xadd", "-xrange -xrevrange"])
def test_a_server_that_does_not_allow_it_still_locks(
    make_servers: Callable[..., Servers], connect: Callable[..., Locker], denied: str
) -> None:
    own = make_servers(1)
    own[0].command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", *denied.split())
    url = own[0].url.replace("redis://", "redis://bob:pw@")
    locks = connect([url], journal=1000, max_ttl=30)
    with locks.lock("a", ttl=20) as lease:
        lease.check()
        assert own[0].command("GET", "a").split(b"\r\n")[1] == lease.token.encode()
    assert own[0].command("GET", "a") == b"$-1\r\n"
    if denied == "-xadd":
        assert locks.journal().entries == ()
    else:
        with pytest.raises(NoQuorum, match="written down"):
            locks.journal()


def test_a_stream_of_somebody_elses_kind_breaks_no_lock(servers: Servers, connect: Callable[..., Locker]) -> None:
    locks = connect(servers.urls[:1], journal=1000, max_ttl=30)
    servers[0].command("SET", "ql:journal", "a string")
    with locks.lock("a", ttl=20):
        pass
    assert not locks.lock("a").locked()
    with pytest.raises(NoQuorum, match="written down"):
        locks.journal()


def test_nodes_that_cannot_be_asked_are_no_empty_journal() -> None:
    nowhere = [f"redis://127.0.0.1:{free_port()}" for _ in range(3)]
    with quorumlock.connect(nowhere) as locks, pytest.raises(NoQuorum, match="written down"):
        locks.journal()


def test_one_node_is_enough_to_tell(make_servers: Callable[..., Servers], connect: Callable[..., Locker]) -> None:
    own = make_servers(3)
    locks = connect(own, journal=1000, max_ttl=30, node_timeout=0.3)
    locks.lock("a", ttl=20).acquire().release()
    told(locks, 2)
    own[1].kill()
    own[2].kill()
    assert words(locks.journal().entries) == [("acquired", "a"), ("released", "a")]
    assert "on 1" not in str(locks.journal().entries)  # the others may have it: nobody knows
