"""Events as Prometheus metrics, labelled by the Locker's `group`, and not by names, of which there are many.

    locks = quorumlock.connect(urls, group="orders")
    export_metrics(locks)

Rates and durations come from events. How long each node takes to answer does not: rounds end when a majority has
answered, so the slow ones would hardly be measured. It is asked for at every scrape, by one harmless look at each
node (`core/pulse.py`); `pulse=False` leaves that out.

Limits: leases that were held before `export_metrics` are not counted in `quorumlock_held`. With asyncio a scrape
shows the pulse that the scrape before has asked for, since it may not wait for the loop it may be running in. The
gauges are not for prometheus_client's multiprocess mode: export them from each process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import events, guards
from ..core.votes import UNABLE, Cause, Tally
from ..errors import ConfigurationError, LossReason
from ..events import WHYS, Event
from .book import Book
from .pulses import Pulses

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise ImportError(f"{missing}: install quorumlock[prometheus]") from missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .. import AsyncLocker, Locker

ACQUIRE = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
HOLD = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
NO_GROUP = "default"


class Metrics(Collector):
    """The metrics of one registry, for all Lockers that are exported to it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry  # kept: `metrics_of` knows it by its identity, which another could have later
        self.watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()
        registry.register(self)  # first: what a pulse finds wrong is counted in the same scrape

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"quorumlock_{name}", text, ("group", *labels), registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            labels = ("group", "kind")
            return Histogram(f"quorumlock_{name}", text, labels, registry=registry, buckets=buckets)

        self.acquire = histogram("acquire_seconds", "From asking for a lock to having it.", ACQUIRE)
        self.hold = histogram("hold_seconds", "From having a lock to its release, or its loss.", HOLD)
        self.given_up = counter("given_up", "Acquires that ended without the lock.", "why")
        self.renewals = counter("renewals", "Leases that were renewed.")
        self.renewals_failed = counter("renewals_failed", "Renewals without a majority; the lease was still valid.")
        self.lost = counter("lost", "Leases that were lost.", "reason")
        self.late = counter("released_late", "Leases that were given back when they were over.")
        self.repeated = counter(
            "releases_repeated", "Releases that had to be sent again, by whether they were confirmed.", "confirmed"
        )
        self.broken = counter("broken", "Locks that this client forced open.")
        self.refused = counter("refused", "Writes that a guard refused: the fence was of an earlier holder.")
        self.errors = counter("node_errors", "Answers of a node that decided nothing, by cause.", "node", "cause")
        self.quarantines = counter("node_quarantines", "How often a node was found in quarantine.", "node")

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return self._gauges()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        held, waiting, latency, up = gauges = self._gauges()
        watchers = list(self.watchers)
        for gauge, figure in ((held, Watcher.count_held), (waiting, Watcher.count_waiting)):
            for group in sorted({watcher.group for watcher in watchers}):
                gauge.add_metric([group], sum(figure(one) for one in watchers if one.group == group))
        slowest: dict[tuple[str, str], float] = {}
        able: dict[tuple[str, str], bool] = {}
        for watcher in watchers:
            for pulse in watcher.feel():
                key = (watcher.group, pulse.node)
                able[key] = able.get(key, True) and pulse.able
                if pulse.latency is not None:
                    slowest[key] = max(slowest.get(key, 0.0), pulse.latency)
        for key, seconds in sorted(slowest.items()):
            latency.add_metric(list(key), seconds)
        for key, well in sorted(able.items()):
            up.add_metric(list(key), well)
        return gauges

    @staticmethod
    def _gauges() -> tuple[GaugeMetricFamily, ...]:
        return (
            GaugeMetricFamily("quorumlock_held", "Leases that this process holds.", labels=["group"]),
            GaugeMetricFamily("quorumlock_waiting", "Acquires of this process that wait.", labels=["group"]),
            GaugeMetricFamily(
                "quorumlock_node_latency_seconds", "How long the node took to answer.", labels=["group", "node"]
            ),
            GaugeMetricFamily("quorumlock_node_up", "Is it able to decide on locks?", labels=["group", "node"]),
        )


class Watcher:
    """Hears the events of one Locker."""

    def __init__(self, locks: Locker | AsyncLocker, metrics: Metrics, pulse: bool) -> None:
        self.of = weakref.ref(locks)
        self.group = locks._settings.group or NO_GROUP
        self._metrics = metrics
        self._book: Book[bool] = Book()
        self._counted: Tally | None = None
        self._pulses = Pulses(locks, self._pulse_failed) if pulse else None
        self._hears: dict[type[Event], Callable[[Any], None]] = {
            events.Waiting: self._book.hear,
            events.GivenUp: self._given_up,
            events.Acquired: self._acquired,
            events.Extended: self._extended,
            events.RenewalFailed: self._renewal_failed,
            events.Lost: self._lost,
            events.Released: self._ended,
            events.ReleasedLate: self._released_late,
            events.ReleaseRepeated: self._repeated,
            events.Broken: self._broken,
            events.FenceRefused: lambda event: metrics.refused.labels(self.group).inc(),
            events.NodeQuarantined: lambda event: metrics.quarantines.labels(self.group, event.node).inc(),
        }
        # What never happened is told as 0: an alert on `increase` does not see a counter that begins at 1.
        for counter in (metrics.refused, metrics.broken, metrics.late, metrics.renewals, metrics.renewals_failed):
            counter.labels(self.group)
        for reason in LossReason:
            metrics.lost.labels(self.group, reason.name.lower())
        for confirmed in ("true", "false"):
            metrics.repeated.labels(self.group, confirmed)
        for why in WHYS:
            metrics.given_up.labels(self.group, why)

    def hear(self, event: Event) -> None:
        if (heard := self._hears.get(type(event))) is not None:
            heard(event)

    def count_held(self) -> int:
        self._book.dropped()
        return self._book.held

    def count_waiting(self) -> int:
        return len(self._book.waiting)

    def feel(self) -> list[Any]:
        return [] if self._pulses is None else self._pulses.feel()

    def _given_up(self, event: events.GivenUp) -> None:
        self._book.hear(event)
        self._metrics.given_up.labels(self.group, event.why).inc()
        self._errors(event.tally)

    def _acquired(self, event: events.Acquired) -> None:
        self._book.hear(event)
        self._book.begin(event, True)
        self._metrics.acquire.labels(self.group, event.kind).observe(event.waited)
        self._errors(event.tally)

    def _extended(self, event: events.Extended) -> None:
        self._book.hear(event)
        self._metrics.renewals.labels(self.group).inc()
        self._errors(event.tally)

    def _renewal_failed(self, event: events.RenewalFailed) -> None:
        self._metrics.renewals_failed.labels(self.group).inc()
        self._errors(event.tally)

    def _lost(self, event: events.Lost) -> None:
        self._metrics.lost.labels(self.group, event.reason.name.lower()).inc()
        self._ended(event)

    def _released_late(self, event: events.ReleasedLate) -> None:
        self._metrics.late.labels(self.group).inc()
        self._ended(event)

    def _ended(self, event: events.Lost | events.Released) -> None:
        if self._book.end(event):
            self._metrics.hold.labels(self.group, event.kind).observe(event.held)

    def _repeated(self, event: events.ReleaseRepeated) -> None:
        self._metrics.repeated.labels(self.group, str(event.confirmed).lower()).inc()

    def _broken(self, event: events.Broken) -> None:
        self._metrics.broken.labels(self.group).inc()
        self._errors(event.tally)

    def _errors(self, tally: Tally | None) -> None:
        if tally is None or tally.heard == len(tally.nodes):
            return
        whole = tally.whole or tally
        if whole is self._counted:  # one round renews many leases, and is told for each of them
            return
        self._counted = whole
        for node, answer in zip(tally.nodes, tally.answers, strict=True):
            if answer is not None and answer.cause in UNABLE and answer.cause is not Cause.LEFT_OUT:
                self._metrics.errors.labels(self.group, node, answer.cause.name.lower()).inc()

    def _pulse_failed(self, node: str, cause: Cause) -> None:
        self._metrics.errors.labels(self.group, node, cause.name.lower()).inc()


_metrics: weakref.WeakValueDictionary[int, Metrics] = weakref.WeakValueDictionary()
"""By the identity of their registry: they keep it, and it keeps them."""


def metrics_of(registry: CollectorRegistry) -> Metrics:
    """The metrics of a registry, made when they are first asked for."""
    if (metrics := _metrics.get(id(registry))) is None:
        metrics = _metrics[id(registry)] = Metrics(registry)
    return metrics


def export_metrics(
    locks: Locker | AsyncLocker, registry: CollectorRegistry = REGISTRY, pulse: bool = True
) -> Callable[[], None]:
    """Counts the events of a Locker in a registry, by its `group`; what is returned ends that.

    Raises ConfigurationError for one that is counted there already.

    `pulse`: ask every node, at each scrape, how fast it answers.
    """
    metrics = metrics_of(registry)
    if any(watcher.of() is locks for watcher in metrics.watchers):
        raise ConfigurationError("this Locker is exported to this registry already: it would be counted twice")
    watcher = Watcher(locks, metrics, pulse)
    unsubscribe = locks.subscribe(watcher.hear)
    metrics.watchers.add(watcher)

    def end() -> None:
        unsubscribe()
        metrics.watchers.discard(watcher)

    return end


def export_refusals(group: str = NO_GROUP, registry: CollectorRegistry = REGISTRY) -> Callable[[], None]:
    """Counts the claims that guards of this process refuse, for a service that takes no locks itself."""
    refused = metrics_of(registry).refused.labels(group)
    return guards.subscribe(lambda event: refused.inc())
