"""Events as metrics: what a scrape shows, in the text that Prometheus reads."""

from __future__ import annotations

import asyncio
import gc
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import quorumlock
from quorumlock import guards
from quorumlock.engines.memory import MemoryEngine
from quorumlock.errors import ConfigurationError, StaleFence
from quorumlock.guards import Claim, FileGuard
from quorumlock.lab.servers import Servers
from quorumlock.observing import book, export_metrics
from quorumlock.observing.prometheus import export_refusals
from tests.support.waiting import eventually, eventually_async

from .conftest import SERVER, BookClock

Sample = Callable[..., float | None]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def locks(registry: CollectorRegistry) -> Iterator[quorumlock.Locker]:
    with quorumlock.connect("memory://?nodes=3", group="orders") as locker:
        export_metrics(locker, registry)
        yield locker


def scrape(registry: CollectorRegistry, text: str | None = None) -> dict[tuple[str, tuple[str, ...]], float]:
    """The samples of a scrape, as a server would parse it: by name, and by the values of their labels in order."""
    said = generate_latest(registry).decode() if text is None else text
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(said)
        for sample in family.samples
    }


def test_acquire_and_hold_are_counted_by_group_and_kind(
    registry: CollectorRegistry, locks: quorumlock.Locker
) -> None:
    locks.lock("a").acquire().release()
    with locks.semaphore("s", 2) as lease:
        at_first = lease.remaining()
        assert eventually(lambda: lease.remaining() < at_first - 0.02)
    seen = scrape(registry)
    for kind in ("mutex", "slot"):
        assert seen["quorumlock_acquire_seconds_count", ("orders", kind)] == 1
        assert seen["quorumlock_hold_seconds_count", ("orders", kind)] == 1
    assert seen["quorumlock_hold_seconds_sum", ("orders", "slot")] >= 0.02
    assert seen["quorumlock_acquire_seconds_sum", ("orders", "slot")] < 10


def test_no_name_of_a_lock_and_no_token_is_in_a_scrape(
    registry: CollectorRegistry, locks: quorumlock.Locker
) -> None:
    with locks.lock("secret-customer") as lease:
        assert locks.lock("secret-customer").try_acquire() is None
        text = generate_latest(registry).decode()
    assert "secret-customer" not in text
    assert lease.token.partition("@")[0] not in text


def test_held_and_waiting_rise_and_fall(registry: CollectorRegistry, locks: quorumlock.Locker) -> None:
    def figures() -> tuple[float, float]:
        seen = scrape(registry)
        return seen["quorumlock_held", ("orders",)], seen["quorumlock_waiting", ("orders",)]

    assert figures() == (0, 0)
    lease, other = locks.lock("a").acquire(), locks.lock("b").acquire()
    assert figures() == (2, 0)
    waiter = threading.Thread(target=lambda: locks.lock("a").acquire().release())
    waiter.start()
    assert eventually(lambda: figures() == (2, 1), 10)
    with pytest.raises(quorumlock.AcquireTimeout):
        locks.lock("b").acquire(timeout=0.01)
    assert eventually(lambda: figures() == (2, 1), 10)
    lease.release()
    waiter.join(10)
    assert figures() == (1, 0)
    other.release()
    assert figures() == (0, 0)


def test_what_is_dropped_without_a_release_is_not_held_for_ever(
    registry: CollectorRegistry, locks: quorumlock.Locker, book_clock: BookClock
) -> None:
    lease = locks.lock("a", ttl=10).acquire()
    with pytest.warns(ResourceWarning, match="dropped"):
        del lease
    book_clock.now += 10
    assert scrape(registry)["quorumlock_held", ("orders",)] == 1, "it may have been late with a renewal"
    book_clock.now += book.GRACE + 1
    assert scrape(registry)["quorumlock_held", ("orders",)] == 0


def test_what_is_renewed_stays_held(
    registry: CollectorRegistry, locks: quorumlock.Locker, book_clock: BookClock
) -> None:
    assert isinstance(locks.engine, MemoryEngine)
    lease = locks.lock("a", ttl=10).acquire()
    for renewed in (1, 2):
        book_clock.now += 10
        locks.engine.clock.advance(6)
        assert eventually(lambda: scrape(registry)["quorumlock_renewals_total", ("orders",)] == renewed, 10)  # noqa: B023
    book_clock.now += book.GRACE + 5
    assert scrape(registry)["quorumlock_held", ("orders",)] == 1
    lease.release()


def test_losses_and_late_releases_are_counted_once(registry: CollectorRegistry, locks: quorumlock.Locker) -> None:
    assert isinstance(locks.engine, MemoryEngine)
    lease = locks.lock("a").acquire()
    locks.break_("a")
    lease.release()
    seen = scrape(registry)
    assert seen["quorumlock_lost_total", ("orders", "broken")] == 1
    assert seen["quorumlock_released_late_total", ("orders",)] == 1
    assert seen["quorumlock_broken_total", ("orders",)] == 1
    assert seen["quorumlock_hold_seconds_count", ("orders", "mutex")] == 1
    assert seen["quorumlock_held", ("orders",)] == 0


def test_acquires_without_success_are_counted_by_why(registry: CollectorRegistry, locks: quorumlock.Locker) -> None:
    with locks.lock("a"):
        assert locks.lock("a").try_acquire() is None
        with pytest.raises(quorumlock.AcquireTimeout):
            locks.lock("a").acquire(timeout=0.01)
    for server in locks.engine.servers[:2]:
        server.flush()
    with pytest.raises(quorumlock.NoQuorum):
        locks.lock("a").try_acquire()
    seen = scrape(registry)
    for why in ("held", "timeout", "no_quorum"):
        assert seen["quorumlock_given_up_total", ("orders", why)] == 1, why
    assert seen["quorumlock_node_errors_total", ("quarantine", "orders", "memory-0")] >= 1
    assert seen["quorumlock_node_quarantines_total", ("orders", "memory-0")] >= 1
    assert [seen["quorumlock_node_up", ("orders", f"memory-{node}")] for node in range(3)] == [0, 0, 1]


def test_nodes_that_do_not_decide_are_counted_by_what_locks_hear_of_them(registry: CollectorRegistry) -> None:
    with quorumlock.connect("memory://?nodes=3", group="orders") as locks:
        export_metrics(locks, registry, pulse=False)
        locks.engine.servers[1].flush()
        lease = locks.lock("a").acquire()
        lease.extend()
        lease.release()
        seen = scrape(registry)
    for cause in ("quarantine", "forgotten"):  # of the acquire, and of the extension
        assert seen["quorumlock_node_errors_total", (cause, "orders", "memory-1")] == 1
    assert not [labels for name, labels in seen if name.startswith("quorumlock_node") and "memory-0" in labels]
    assert not [name for name, _ in seen if name == "quorumlock_node_up"], "nobody was asked"


def test_refusals_of_guards_are_counted(
    registry: CollectorRegistry, locks: quorumlock.Locker, tmp_path: Path
) -> None:
    assert scrape(registry)["quorumlock_refused_total", ("orders",)] == 0, "there before the first"
    guard = FileGuard(tmp_path / "report")
    old = locks.lock("report").acquire()
    old.release()
    with locks.lock("report") as new:
        guard.enter(new)
    with pytest.raises(StaleFence):
        guard.enter(old)
    stop = export_refusals("service", registry)
    with pytest.raises(StaleFence):
        guard.enter(Claim("report", old.fence))
    stop()
    seen = scrape(registry)
    assert seen["quorumlock_refused_total", ("orders",)] == 1
    assert seen["quorumlock_refused_total", ("service",)] == 1
    assert not guards.base._bus.listening


def test_nobody_is_counted_twice(registry: CollectorRegistry) -> None:
    with quorumlock.connect("memory://") as locks:
        stop = export_metrics(locks, registry)
        with pytest.raises(quorumlock.ConfigurationError, match="already"):
            export_metrics(locks, registry)
        export_metrics(locks, CollectorRegistry())()
        stop()
        export_metrics(locks, registry)()


def test_lockers_of_one_group_are_counted_together(registry: CollectorRegistry, locks: quorumlock.Locker) -> None:
    with quorumlock.connect("memory://", group="orders") as same, quorumlock.connect("memory://") as other:
        stops = [export_metrics(one, registry) for one in (same, other)]
        with locks.lock("a"), same.lock("a"), other.lock("a"):
            seen = scrape(registry)
        assert seen["quorumlock_held", ("orders",)] == 2
        assert seen["quorumlock_held", ("default",)] == 1
        for stop in stops:
            stop()
        assert ("quorumlock_held", ("default",)) not in scrape(registry)


def test_a_locker_that_is_gone_leaves_its_counters_and_takes_its_gauges(registry: CollectorRegistry) -> None:
    locks = quorumlock.connect("memory://", group="short")
    export_metrics(locks, registry)
    locks.lock("a").acquire().release()
    locks.close()
    seen = scrape(registry)
    assert seen["quorumlock_acquire_seconds_count", ("short", "mutex")] == 1
    assert not [name for name, labels in seen if name.startswith("quorumlock_node_up") and "short" in labels]
    del locks
    gc.collect()
    assert ("quorumlock_held", ("short",)) not in scrape(registry)


def test_a_registry_that_is_gone_is_not_taken_for_another(locks: quorumlock.Locker) -> None:
    for _ in range(20):  # an address is soon used again
        registry = CollectorRegistry()
        export_metrics(locks, registry)
        assert ("quorumlock_refused_total", ("orders",)) in scrape(registry)
        del registry


@pytest.mark.live
@pytest.mark.real_time
@pytest.mark.parametrize("kind", [SERVER], indirect=True)
def test_nodes_are_timed_at_a_scrape_over_http(
    registry: CollectorRegistry, make_servers: Callable[..., Servers], connect: Callable[..., quorumlock.Locker]
) -> None:
    servers = make_servers(3)
    locks = connect(servers, group="orders", node_timeout=0.2)
    export_metrics(locks, registry)
    httpd, thread = start_http_server(0, "127.0.0.1", registry)
    try:

        def seen() -> dict[tuple[str, tuple[str, ...]], float]:
            with urllib.request.urlopen(f"http://127.0.0.1:{httpd.server_port}/metrics", timeout=30) as answer:
                return scrape(registry, answer.read().decode())

        labels = [("orders", server.label) for server in servers.servers]
        first = seen()
        assert all(0 < first["quorumlock_node_latency_seconds", one] < 0.2 for one in labels)
        assert [first["quorumlock_node_up", one] for one in labels] == [1, 1, 1]
        assert not [name for name, _ in first if name == "quorumlock_node_errors_total"]
        servers[1].pause()
        after = seen()
        assert [after["quorumlock_node_up", one] for one in labels] == [1, 0, 1]
        assert ("quorumlock_node_latency_seconds", labels[1]) not in after
        assert after["quorumlock_node_errors_total", ("silent", *labels[1])] >= 1
        servers[1].resume()
        assert eventually(lambda: seen()["quorumlock_node_up", labels[1]] == 1)
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join(10)


@pytest.mark.live
@pytest.mark.real_time
@pytest.mark.parametrize("kind", [SERVER], indirect=True)
def test_on_asyncio_a_scrape_shows_what_the_last_one_asked_for(
    registry: CollectorRegistry, make_servers: Callable[..., Servers]
) -> None:
    servers = make_servers(3)

    async def main() -> None:
        async with quorumlock.connect_async(servers.urls, group="async", max_ttl=1.0) as locks:
            await locks.init_fleet()
            export_metrics(locks, registry)
            async with locks.lock("a", ttl=1):
                assert scrape(registry)["quorumlock_held", ("async",)] == 1  # in the loop itself: it does not hang
            label = ("async", servers[0].label)

            async def latency_is_known() -> bool:
                return ("quorumlock_node_latency_seconds", label) in await asyncio.to_thread(scrape, registry)

            assert await eventually_async(latency_is_known)
            seen = scrape(registry)
            assert 0 < seen["quorumlock_node_latency_seconds", label] < 1
            assert seen["quorumlock_acquire_seconds_count", ("async", "mutex")] == 1

    asyncio.run(main())


def test_an_async_locker_is_exported_where_its_loop_runs(registry: CollectorRegistry) -> None:
    locks = quorumlock.connect_async("memory://")
    with pytest.raises(ConfigurationError, match="where the loop runs"):
        export_metrics(locks, registry)
    export_metrics(locks, registry, pulse=False)()
    asyncio.run(locks.aclose())


def test_a_store_is_asked_too_and_says_that_it_cannot(registry: CollectorRegistry, tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with quorumlock.connect(f"sqlite:///{path}", group="file") as locks:
        export_metrics(locks, registry)
        label = ("file", f"sqlite:{path}")
        seen = scrape(registry)
        assert seen["quorumlock_node_up", label] == 1
        assert seen["quorumlock_node_latency_seconds", label] > 0
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no database, but long enough to be looked at as one" * 100)
    with quorumlock.connect(f"sqlite:///{broken}", group="file") as locks:
        export_metrics(locks, registry)
        seen = scrape(registry)
        assert seen["quorumlock_node_up", ("file", f"sqlite:{broken}")] == 0
        assert seen["quorumlock_node_errors_total", ("failed", "file", f"sqlite:{broken}")] >= 1


def test_an_answer_to_a_round_about_many_leases_is_counted_once(registry: CollectorRegistry) -> None:
    with quorumlock.connect("memory://?nodes=3", group="orders") as locks:
        export_metrics(locks, registry, pulse=False)
        leases = [locks.lock(str(number)).acquire() for number in range(20)]
        locks.engine.servers[1].flush()
        assert isinstance(locks.engine, MemoryEngine)
        locks.engine.clock.advance(6)
        assert eventually(lambda: all(lease.remaining() > 9 for lease in leases))
        for lease in leases:
            lease.release()
    seen = scrape(registry)
    assert seen["quorumlock_renewals_total", ("orders",)] >= 20
    assert 1 <= seen["quorumlock_node_errors_total", ("forgotten", "orders", "memory-1")] < 10
