"""The event bus: onlookers cannot break a lock."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from quorumlock import events
from quorumlock.events import Bus, Event, NodeDown, NodeUp


class Listener:
    def __init__(self) -> None:
        self.heard: list[Event] = []

    def hear(self, event: Event) -> None:
        self.heard.append(event)


def test_every_subscriber_hears_every_event_in_order() -> None:
    bus, one, two = Bus(), Listener(), Listener()
    bus.subscribe(one.hear)
    bus.subscribe(two.hear)
    told = [NodeDown("a:1", "silent"), NodeUp("a:1")]
    for event in told:
        bus.emit(event)
    assert one.heard == two.heard == told


def test_a_bus_is_listening_only_while_somebody_is_there() -> None:
    bus = Bus()
    quiet = [bus.listening]
    unsubscribe = bus.subscribe(print)
    assert bus.listening
    unsubscribe()
    assert not any([*quiet, bus.listening])


def test_a_failing_subscriber_is_logged_and_dropped_and_the_others_still_hear(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus, listener = Bus(), Listener()

    def fail(_: Event) -> None:
        raise ZeroDivisionError("the subscriber's own bug")

    bus.subscribe(fail)
    bus.subscribe(listener.hear)
    with caplog.at_level(logging.ERROR, "quorumlock"):
        bus.emit(NodeUp("a:1"))
    assert listener.heard == [NodeUp("a:1")]
    [record] = caplog.records
    assert "NodeUp" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize("strike", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_not_swallowed_by_the_bus(strike: type[BaseException]) -> None:
    bus = Bus()

    def interrupted(_: Event) -> None:
        raise strike

    bus.subscribe(interrupted)
    with pytest.raises(strike):
        bus.emit(NodeUp("a:1"))


def test_unsubscribing_takes_away_one_subscriber_and_may_be_repeated() -> None:
    bus, one, two = Bus(), Listener(), Listener()
    leave = bus.subscribe(one.hear)
    bus.subscribe(two.hear)
    leave()
    leave()
    bus.emit(NodeUp("a:1"))
    assert not one.heard
    assert two.heard


def test_who_subscribed_twice_and_leaves_once_is_still_there() -> None:
    bus, listener = Bus(), Listener()
    hear = listener.hear
    leave = bus.subscribe(hear)
    bus.subscribe(hear)
    leave()
    bus.emit(NodeUp("a:1"))
    assert len(listener.heard) == 1


def test_a_subscriber_may_leave_while_it_is_called() -> None:
    bus, listener = Bus(), Listener()

    def once(_: Event) -> None:
        leave()

    leave = bus.subscribe(once)
    bus.subscribe(listener.hear)
    bus.emit(NodeUp("a:1"))
    bus.emit(NodeUp("b:2"))
    assert len(listener.heard) == 2


def test_every_event_is_an_immutable_value() -> None:
    kinds = [getattr(events, name) for name in events.__all__ if name != "Event"]
    assert len(kinds) >= 10
    for kind in kinds:
        assert issubclass(kind, Event)
        event = kind(*["x"] * len(dataclasses.fields(kind)))
        assert event == kind(*["x"] * len(dataclasses.fields(kind)))
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, dataclasses.fields(kind)[0].name, "y")
