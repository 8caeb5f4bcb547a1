"""Events as OpenTelemetry spans: `lock.acquire`, from asking to having, `lock.hold`, from having to giving back.

Only the API is used: without an SDK that somebody has set up, spans go nowhere. Both are children of the span that
is current where the lock is acquired. A span of an acquire is made when it is over, with its real beginning. The
name of the lock is an attribute: a backend that makes metrics of spans should leave that out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import events
from ..core.votes import UNABLE, Tally
from ..events import Event
from .book import Book

try:
    from opentelemetry import trace
except ImportError as missing:
    raise ImportError(f"{missing}: install quorumlock[opentelemetry]") from missing

if TYPE_CHECKING:
    from .. import AsyncLocker, Locker

Attributes = dict[str, str | int | float | bool]


class Spans:
    """Hears the events of one Locker."""

    def __init__(self, tracer: trace.Tracer, group: str | None) -> None:
        self._tracer = tracer
        self._group = group
        self._book: Book[trace.Span] = Book()
        self._waits: dict[int, tuple[int, Attributes]] = {}

    def hear(self, event: Event) -> None:
        self._book.hear(event)
        if isinstance(event, events.Waiting):
            self._waits[event.serial] = time.time_ns(), _waiting(event)
        elif isinstance(event, events.Acquired):
            self._acquired(event)
        elif isinstance(event, events.GivenUp):
            self._given_up(event)
        elif isinstance(event, events.RenewalFailed):
            self._note(event, "renewal failed", {"why": event.why, "remaining": event.remaining})
        elif isinstance(event, events.Healed):
            self._note(event, "healed", {"nodes": ", ".join(event.nodes)})
        elif isinstance(event, events.FenceRefused):
            self._note(event, "fence refused", {"resource": event.resource, "seen": event.seen})
        elif isinstance(event, events.Lost | events.Released):
            self._ended(event)

    def _acquired(self, event: events.Acquired) -> None:
        for span in self._book.dropped():
            span.set_status(trace.StatusCode.ERROR, "dropped without a release")
            span.end()
        now = time.time_ns()
        about = self._about(event.name, event.kind) | {"quorumlock.fence": event.fence}
        asked = self._asked(event, about | _votes(event.tally), now)
        asked.end(now)
        about |= {"quorumlock.ttl": event.ttl}
        hold = self._tracer.start_span("lock.hold", start_time=now, attributes=about)
        if event.serial:
            self._book.begin(event, hold)
        else:
            hold.end(now)

    def _given_up(self, event: events.GivenUp) -> None:
        now = time.time_ns()
        about = self._about(event.name, event.kind) | {"quorumlock.why": event.why}
        span = self._asked(event, about if event.tally is None else about | _votes(event.tally), now)
        if event.why != "held":  # a lock that is held, and not to be waited for, is an answer and no error
            span.set_status(trace.StatusCode.ERROR, event.why)
        span.end(now)

    def _asked(self, event: events.Acquired | events.GivenUp, about: Attributes, now: int) -> trace.Span:
        began = now - round(event.waited * 1e9)
        span = self._tracer.start_span("lock.acquire", start_time=began, attributes=about)
        if (waits := self._waits.pop(event.serial, None)) is not None:
            span.add_event("waiting", waits[1], max(began, waits[0]))  # two clocks need not agree on a microsecond
        return span

    def _note(
        self, event: events.RenewalFailed | events.Healed | events.FenceRefused, what: str, about: Attributes
    ) -> None:
        if (span := self._book.entry(event.serial)) is not None:
            span.add_event(what, about)

    def _ended(self, event: events.Lost | events.Released) -> None:
        if (span := self._book.end(event)) is None:
            return
        if isinstance(event, events.Lost):
            span.set_attribute("quorumlock.lost", event.reason.name.lower())
            span.set_status(trace.StatusCode.ERROR, f"lost: {event.reason.value}")
        elif isinstance(event, events.ReleasedLate):
            span.set_status(trace.StatusCode.ERROR, "released late")
        else:
            span.set_attribute("quorumlock.confirmed", event.confirmed)
        span.end()

    def _about(self, name: str, kind: str) -> Attributes:
        about: Attributes = {"quorumlock.name": name, "quorumlock.kind": kind}
        return about if self._group is None else about | {"quorumlock.group": self._group}


def _waiting(event: events.Waiting) -> Attributes:
    known = (("remaining", event.remaining), ("fence", event.fence), ("ahead", event.ahead))
    return {name: value for name, value in known if value is not None}


def _votes(tally: Tally) -> Attributes:
    unable = sum(answer is not None and answer.cause in UNABLE for answer in tally.answers)
    return {"quorumlock.nodes": len(tally.nodes), "quorumlock.nodes_unable": unable}


def trace_locks(
    locks: Locker | AsyncLocker, tracer_provider: trace.TracerProvider | None = None
) -> Callable[[], None]:
    """Makes spans of the events of a Locker; what is returned ends that.

    `tracer_provider`: default is the global one.
    """
    from .. import __version__

    tracer = trace.get_tracer("quorumlock", __version__, tracer_provider)
    return locks.subscribe(Spans(tracer, locks._settings.group).hear)
