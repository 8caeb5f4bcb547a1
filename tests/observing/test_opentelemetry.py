"""Events as spans, as an exporter of the SDK gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import quorumlock
from quorumlock.guards import FileGuard
from quorumlock.observing import book, trace_locks
from tests.support.waiting import eventually

from .conftest import BookClock


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    yield made
    made.shutdown()


@pytest.fixture
def locks(provider: TracerProvider) -> Iterator[quorumlock.Locker]:
    with quorumlock.connect("memory://?nodes=3", group="orders") as locker:
        trace_locks(locker, provider)
        yield locker


def spans(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_a_lock_has_a_span_for_its_acquire_and_one_for_its_hold(
    exporter: InMemorySpanExporter, provider: TracerProvider, locks: quorumlock.Locker
) -> None:
    with provider.get_tracer("test").start_as_current_span("work") as work, locks.lock("a") as lease:
        at_first = lease.remaining()
        assert eventually(lambda: lease.remaining() < at_first - 0.05)
    [acquire], [hold] = spans(exporter, "lock.acquire"), spans(exporter, "lock.hold")
    about = {"quorumlock.name": "a", "quorumlock.kind": "mutex", "quorumlock.group": "orders"}
    for span in (acquire, hold):
        assert span.attributes is not None
        assert about.items() <= dict(span.attributes).items()
        assert span.attributes["quorumlock.fence"] == lease.fence
        assert span.parent is not None
        assert span.parent.span_id == work.get_span_context().span_id
        assert span.status.status_code is StatusCode.UNSET
        assert lease.token.partition("@")[0] not in str(span.to_json())
    assert acquire.attributes is not None
    assert acquire.attributes["quorumlock.nodes"] == 3
    assert acquire.attributes["quorumlock.nodes_unable"] == 0
    assert 0.05 <= seconds(hold) < 5
    assert seconds(acquire) < 5


def test_the_span_of_an_acquire_begins_when_it_is_asked_for(
    exporter: InMemorySpanExporter, locks: quorumlock.Locker
) -> None:
    lease = locks.lock("a").acquire()
    with pytest.raises(quorumlock.AcquireTimeout):
        locks.lock("a").acquire(timeout=0.1)
    lease.release()
    _, waited = spans(exporter, "lock.acquire")
    assert 0.1 <= seconds(waited) < 5
    assert waited.status.status_code is StatusCode.ERROR
    assert waited.status.description == "timeout"
    [event] = waited.events
    assert event.name == "waiting"
    assert event.attributes is not None
    assert event.attributes["fence"] == lease.fence
    assert waited.start_time is not None
    assert waited.start_time <= event.timestamp


def test_a_lock_that_is_held_is_no_error_where_nobody_wants_to_wait(
    exporter: InMemorySpanExporter, locks: quorumlock.Locker
) -> None:
    with locks.lock("a"):
        assert locks.lock("a").try_acquire() is None
    assert [span.status.status_code for span in spans(exporter, "lock.acquire")] == [StatusCode.UNSET] * 2


def test_a_loss_is_an_error_of_the_hold(
    exporter: InMemorySpanExporter, locks: quorumlock.Locker, tmp_path: Path
) -> None:
    guard = FileGuard(tmp_path / "report")
    lease = locks.lock("report").acquire()
    newer = quorumlock.guards.Claim("report", lease.fence + 1)
    guard.enter(newer)
    with pytest.raises(quorumlock.StaleFence):
        guard.enter(lease)
    locks.engine.force_lose("report")
    lease.release()
    [hold] = spans(exporter, "lock.hold")
    assert hold.status.status_code is StatusCode.ERROR
    assert hold.attributes is not None
    assert hold.attributes["quorumlock.lost"] == "broken"
    assert [event.name for event in hold.events] == ["fence refused"]


def test_what_is_dropped_without_a_release_ends_some_day(
    exporter: InMemorySpanExporter, locks: quorumlock.Locker, book_clock: BookClock
) -> None:
    lease = locks.lock("a", ttl=10).acquire()
    with pytest.warns(ResourceWarning, match="dropped"):
        del lease
    book_clock.now += 10 + book.GRACE + 1
    locks.lock("b").acquire().release()
    dropped, released = spans(exporter, "lock.hold")
    assert dropped.status.description == "dropped without a release"
    assert released.status.status_code is StatusCode.UNSET


def test_on_asyncio_each_task_has_its_own_parent(exporter: InMemorySpanExporter, provider: TracerProvider) -> None:
    tracer = provider.get_tracer("test")
    parents: dict[str, int] = {}
    all_hold = asyncio.Barrier(3)

    async def work(locks: quorumlock.AsyncLocker, name: str) -> None:
        with tracer.start_as_current_span(name) as span:
            parents[name] = span.get_span_context().span_id
            async with locks.lock(name):
                await all_hold.wait()

    async def main() -> None:
        async with quorumlock.connect_async("memory://") as locks:
            trace_locks(locks, provider)
            await asyncio.gather(*(work(locks, name) for name in "abc"))

    asyncio.run(main())
    for kind in ("lock.acquire", "lock.hold"):
        found = {}
        for span in spans(exporter, kind):
            assert span.attributes is not None
            assert span.parent is not None
            found[span.attributes["quorumlock.name"]] = span.parent.span_id
        assert found == parents


def test_who_stops_it_gets_no_more_spans(exporter: InMemorySpanExporter, provider: TracerProvider) -> None:
    with quorumlock.connect("memory://") as locks:
        stop = trace_locks(locks, provider)
        locks.lock("a").acquire().release()
        stop()
        locks.lock("a").acquire().release()
    assert len(exporter.get_finished_spans()) == 2


def test_without_an_sdk_nothing_happens() -> None:
    with quorumlock.connect("memory://") as locks:
        trace_locks(locks)
        locks.lock("a").acquire().release()
