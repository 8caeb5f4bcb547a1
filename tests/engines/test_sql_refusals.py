"""PostgreSQL and MariaDB: who is not let in, and what may not be done; names and texts that need care."""

from __future__ import annotations

import asyncio
import time

import pytest

import quorumlock
from quorumlock import ConfigurationError, Locker, NoQuorum, Unsupported
from quorumlock.cli import main
from quorumlock.core.votes import Cause
from quorumlock.events import Event, Extended
from quorumlock.lab.servers import free_port, give_back
from tests.support.waiting import eventually

from .sql_servers import PASSWORD, Connect, Place, cause_of, connect, on_mysql, place

__all__ = ["connect", "place"]
pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]
WRONG = "wrong'%secret"


def refused(locker: Locker) -> NoQuorum:
    """Why a lock cannot be had, within the time that it takes to find out."""
    started = time.monotonic()
    with pytest.raises(NoQuorum) as caught:
        locker.lock("a", ttl=5).acquire(timeout=0.2)
    assert time.monotonic() - started < 10.0
    return caught.value


def test_a_wrong_password(poor: Place) -> None:
    async def of_a_task(url: str) -> NoQuorum:
        async with quorumlock.connect_async(url) as locker:
            with pytest.raises(NoQuorum) as caught:
                await locker.lock("a", ttl=5).acquire(timeout=0.2)
            return caught.value

    url = poor.url(user="poor", password=WRONG)
    with poor.connect(url=url) as locker:
        for error in (refused(locker), asyncio.run(of_a_task(url))):
            assert cause_of(error)[0] is Cause.DENIED
            assert poor.label in str(error)
            for text in (str(error), repr(error), repr(locker), repr(locker.engine), str(locker.nodes())):
                assert WRONG not in text
        (state,) = locker.nodes()
        assert state.state == "down"
        assert "poor" in state.detail


def test_a_database_that_is_not_there(place: Place) -> None:
    with place.connect(url=place.url(database="nowhere")) as locker:
        cause, detail = cause_of(refused(locker))
        assert cause is Cause.DENIED
        assert "nowhere" in detail


def test_a_port_where_nobody_listens(place: Place) -> None:
    port = free_port()
    with place.connect(url=place.url(port)) as locker:
        error = refused(locker)
        assert cause_of(error)[0] is Cause.UNREACHABLE
        assert str(port) in str(error)
        assert "refused" in str(error)
        assert locker.nodes()[0].state == "down"
    give_back(port)


def test_a_name_that_is_no_host(place: Place) -> None:
    url = place.url().replace("127.0.0.1", "no-such-host.invalid")
    with place.connect(url=url) as locker, pytest.raises(NoQuorum, match=r"no-such-host\.invalid"):
        locker.lock("a", ttl=5).acquire(timeout=0.2)


def test_who_may_not_make_tables_is_told_what_to_do_and_init_by_the_owner_helps(poor: Place) -> None:
    database = poor.another_database()
    user, whole = ("poor", f"{database}.*") if not poor.announces else ("poor", "")
    if poor.announces:
        poor.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database=database)
    else:
        poor.sql(f"GRANT SELECT ON {whole} TO {user}")
    url = poor.url(user=user, password=PASSWORD, database=database)
    with poor.connect(url=url) as locker:
        error = refused(locker)
        assert cause_of(error)[0] is Cause.FAILED
        assert "quorumlock init" in str(error)
        assert PASSWORD not in str(error)
    assert main(["init", "--url", poor.url(database=database)]) == 0
    with poor.connect(url=url) as locker:
        if poor.announces:
            tables = "quorumlock_locks, quorumlock_cells, quorumlock_meta"
            poor.sql(f"GRANT SELECT ON {tables} TO poor", database=database)
        error = refused(locker)
        assert cause_of(error)[0] is Cause.FAILED
        assert "grant SELECT, INSERT, UPDATE and DELETE" in str(error)
        if poor.announces:
            poor.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO poor", database=database)
        else:
            for table in ("locks", "cells", "meta"):
                poor.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.quorumlock_{table} TO poor")
        with locker.lock("a", ttl=5) as lease:
            assert lease.fence > 0
        locker.cell("c").set("v", 0)
        with locker.multi(["a", "b"], ttl=5), locker.read_write("rw").read(ttl=5):
            pass


def test_tables_of_a_newer_quorumlock(place: Place) -> None:
    database = place.another_database()
    url = place.url(database=database)
    with place.connect(url=url) as locker:
        locker.lock("a", ttl=5).acquire().release()
    place.sql("UPDATE quorumlock_meta SET format = 2", database=database)
    with place.connect(url=url) as locker:
        for ask in (lambda: locker.lock("a").try_acquire(), lambda: locker.cell("c").get()):
            with pytest.raises(ConfigurationError, match=r"format 2, this one knows 1.*upgrade"):
                ask()
        (state,) = locker.nodes()
        assert state.state == "misfit"
        assert "format 2" in state.detail


def test_a_server_that_only_reads(poor: Place) -> None:
    database = poor.another_database()
    url = poor.url(database=database)
    with poor.connect(url=url) as locker:
        locker.lock("a", ttl=5).acquire().release()
    if poor.announces:
        poor.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    else:
        poor.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON {database}.* TO poor")
        url = poor.url(user="poor", password=PASSWORD, database=database)  # the first user may write all the same
        poor.sql("SET GLOBAL read_only = 1")
    try:
        with poor.connect(url=url) as locker:
            error = refused(locker)
            assert cause_of(error)[0] is Cause.FAILED
            assert "only reads; name the primary" in str(error)
    finally:
        if not poor.announces:
            poor.sql("SET GLOBAL read_only = 0")


@on_mysql
def test_a_login_that_needs_a_library_which_is_not_there(place: Place) -> None:
    place.sql("INSTALL SONAME 'auth_ed25519'", "CREATE USER modern IDENTIFIED VIA ed25519 USING PASSWORD('x')")
    with place.connect(url=place.url(user="modern", password="x")) as locker:
        cause, detail = cause_of(refused(locker))
    assert cause is Cause.DENIED
    assert "nacl" in detail.lower()


def test_there_is_no_journal(place: Place, connect: Connect) -> None:
    with pytest.raises(Unsupported, match=r"journal.*subscribe"):
        connect(journal=100)
    assert not connect().journal().kept


@pytest.mark.parametrize("rest", ["d?no_such_option=1", "d?ssl_disabled=s3cret"])
def test_a_url_that_cannot_be_read_does_not_show_its_password(place: Place, rest: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        quorumlock.connect(f"{place.kind}://u:s3cret@h/{rest}")
    assert "s3cret" not in str(caught.value)


def test_a_password_is_shown_nowhere(poor: Place) -> None:
    locker = poor.connect(url=poor.url(user="poor", password=PASSWORD))
    shown = (
        repr(locker),
        repr(locker.engine),
        str(locker.engine.labels),
        str(locker.nodes()),
        repr(locker.lock("a")),
    )
    assert not [text for text in shown if PASSWORD in text or "pass'w" in text]
    locker.close()


# Texts.

NAMES = [
    "a/../b", "it's \"quoted\" `so`", "100% %s %(a)s %%", "semi;-- x", "päth/日本/🔒", "a:b::c $1",
    " spaced  ", "A", "a", "é", "e\u0301", "n" * 1024, "🔒" * 256,
]  # fmt: skip


def test_names_that_need_care_are_all_different(connect: Connect) -> None:
    locker = connect(prefix="it's 100%:")
    leases = [locker.lock(name, ttl=10, note="für 'später' 🔒 %s").acquire(timeout=0) for name in NAMES]
    assert sorted(locker.list()) == sorted(NAMES)
    for name, lease in zip(NAMES, leases, strict=True):
        (holder,) = locker.inspect(name).holders
        assert (holder.fence, holder.note) == (lease.fence, "für 'später' 🔒 %s")
        assert locker.lock(name).try_acquire() is None
    assert locker.list("100%*") == ["100% %s %(a)s %%"]
    for lease in leases:
        lease.release()
    assert locker.list() == []


def test_the_longest_names_there_are(connect: Connect) -> None:
    """Random ones, which no index can compress."""
    import random

    made = random.Random(5)
    long = ["".join(chr(made.randrange(0x4E00, 0x9FA5)) for _ in range(341)) for _ in range(2)]
    locker = connect(prefix=long[0])
    with locker.lock(long[1], ttl=5, timeout=1):
        assert locker.list() == [long[1]]
    with locker.semaphore(long[1], 2, ttl=5, timeout=1), locker.read_write(long[0]).read(ttl=5, timeout=1):
        pass
    locker.cell(long[1]).set({"a": 1}, 0)


def test_looking_listing_and_breaking(place: Place, connect: Connect) -> None:
    ours, theirs = connect(prefix="look:"), connect(prefix="look:")
    lease = ours.lock("a", ttl=5, note="by hand").acquire()
    seen = theirs.inspect("a")
    assert (seen.state, seen.holders[0].fence, seen.holders[0].note) == ("held", lease.fence, "by hand")
    assert theirs.list() == ["a"]
    theirs.break_("a")
    assert theirs.list() == []
    with theirs.lock("a", ttl=5) as later:
        assert later.fence > lease.fence + 1, "a break raises the fence, too"
        with pytest.raises(quorumlock.LeaseLost):
            lease.extend(5)
    (state,) = ours.nodes()
    assert (state.node, state.state, state.server) == (place.label, "ready", place.kind)
    assert (state.version or "?")[0].isdigit()
    assert 0 < (state.latency or 0) < 1.0
    assert abs(9.0 if state.clock_offset is None else state.clock_offset) < 0.5


def test_more_names_than_one_query_takes(place: Place, connect: Connect) -> None:
    locker = connect(prefix="many:")
    names = [f"n{number:04}" for number in range(450)]
    locker.lock(names[0], ttl=60, keep=False).acquire()
    others = " UNION ALL ".join(f"SELECT 'many:{name}' AS name" for name in names[1:])
    columns = "begins, version, fence, token, until_us, touched_us, doc"
    place.sql(
        f"INSERT INTO quorumlock_locks (name, {columns}) SELECT others.name, {columns} "
        f"FROM quorumlock_locks AS one, ({others}) AS others WHERE one.name = 'many:{names[0]}'"
    )
    assert locker.list(limit=1000) == names
    assert len(locker.survey(limit=1000)) == 450
    place.sql("DELETE FROM quorumlock_locks WHERE name LIKE 'many:%'")


@on_mysql
@pytest.mark.parametrize(
    "collation", ["utf8mb4_unicode_ci", "utf8mb4_bin", "latin1_swedish_ci", "utf16_general_ci"]
)
def test_databases_of_any_collation(place: Place, collation: str) -> None:
    """MySQL has one for each database."""
    database = place.another_database(f"COLLATE {collation}")
    with place.connect(url=place.url(database=database)) as locker:
        renewed: set[str] = set()

        def note(event: Event) -> None:
            if isinstance(event, Extended):
                renewed.add(event.name)

        locker.subscribe(note)
        with locker.lock("ä", ttl=1) as lease, locker.multi(["x", "y"], ttl=1) as both:
            assert eventually(lambda: renewed >= {"ä", both.name})
            lease.check()
            lease.extend(2)
        with locker.read_write("ä").write(ttl=1), locker.semaphore("s", 2, ttl=1):
            pass
        assert locker.cell("c").set("ä", 0) > 0
