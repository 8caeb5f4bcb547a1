"""One acquire, as onlookers are told of it before there is a lease: it has to wait, or it was given up."""

from __future__ import annotations

from .core.fleet import Fleet
from .errors import AcquireTimeout, LockError, LockHeld, NoQuorum, NotAcquired
from .events import Bus, GivenUp, Waiting, next_serial


class Onlooker:
    """Made for an acquire only while somebody listens."""

    __slots__ = ("_asked_at", "_bus", "_fleet", "_kind", "_name", "serial")

    def __init__(self, bus: Bus, fleet: Fleet, name: str, kind: str) -> None:
        self._bus = bus
        self._fleet = fleet
        self._name = name
        self._kind = kind
        self._asked_at = fleet.clock()
        self.serial = next_serial()

    def waits(self, remaining: float | None, fence: int | None, ahead: int) -> None:
        self._bus.emit(Waiting(self._name, self._kind, remaining, fence, ahead, self.serial))

    def gave_up(self, error: BaseException) -> None:
        tell_given_up(self._bus, self._name, self._kind, error, self._fleet.clock() - self._asked_at, self.serial)


def tell_given_up(
    bus: Bus, name: str, kind: str, error: BaseException | None, waited: float = 0.0, serial: int = 0
) -> None:
    """Tells that a lock was not obtained; no error: it was held, and not to be waited for."""
    tally = error.tally if isinstance(error, NotAcquired) else None
    bus.emit(GivenUp(name, _why(error), waited, tally, kind, serial))


def _why(error: BaseException | None) -> str:
    if error is None or isinstance(error, LockHeld):
        return "held"
    if isinstance(error, AcquireTimeout):
        return "timeout"
    if isinstance(error, NoQuorum):
        return "no_quorum"
    return "error" if isinstance(error, LockError) else "interrupted"
