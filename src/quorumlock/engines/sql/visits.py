"""Who answers what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.requests import (
    Acquire,
    AcquireAll,
    AcquireAny,
    Break,
    CellEnter,
    CellGet,
    CellPut,
    CellSwap,
    Close,
    Confirm,
    ConfirmAll,
    Downgrade,
    Extend,
    Heal,
    Initialise,
    Inspect,
    InspectMany,
    Join,
    Leave,
    Look,
    Past,
    Refused,
    Release,
    Request,
    Scan,
    Survey,
)
from ...core.votes import Answer
from ...errors import Unsupported
from ...options import Settings
from ..base import no_past
from . import pruning, schema
from .batches import Batch, Query, Visit
from .cells import Cells
from .dialect import Dialect
from .lock import AGREED
from .looking import Looking
from .rows import PRUNE_EVERY, Rows

NOT_TWICE = (CellSwap, CellPut, CellEnter, Break)
"""Requests that would be misunderstood if they came again: they do not carry a token to be known by."""


class Visits:
    """All that a client asks of a database."""

    def __init__(self, dialect: Dialect, label: str, settings: Settings) -> None:
        self._dialect, self._label = dialect, label
        self._keep = settings.fence_ttl
        self.rows = Rows(dialect, label, settings.prefix)
        self.locks = locks = Looking(self.rows, settings.prefix, max(1, round(settings.node_timeout * 1000)))
        cells = Cells(dialect, label, settings.prefix)
        self._answers: dict[type[Request], Callable[[Any], Visit[Answer]]] = {
            Join: self._nothing,
            Acquire: locks.acquire,
            AcquireAny: locks.acquire_any,
            AcquireAll: locks.acquire_all,
            Confirm: locks.confirm,
            ConfirmAll: locks.confirm_all,
            Downgrade: locks.downgrade,
            Extend: locks.extend,
            Heal: locks.heal,
            Release: locks.release,
            Leave: locks.leave,
            Break: locks.break_,
            Look: locks.look,
            Inspect: locks.inspect,
            InspectMany: locks.inspect_many,
            Scan: locks.scan,
            Past: self._no_past,
            Refused: self._no_journal,
            CellGet: cells.get,
            CellEnter: cells.enter,
            CellSwap: cells.swap,
            CellPut: cells.put,
            Survey: self._nothing,
            Close: self._nothing,
            Initialise: self._nothing,
        }

    def answer(self, request: Request, owed: dict[Request, None] | None = None) -> Visit[Answer]:
        """First what is `owed`: releases that did not get through. A token is new for every attempt, so it does
        not matter when they come, if only behind what they undo."""
        for one in tuple(owed or ()):
            yield from self._answers[type(one)](one)
            assert owed is not None
            owed.pop(one, None)
        return (yield from self._answers[type(request)](request))

    def prune_if_due(self) -> Visit[None] | None:
        if self.rows.changes < PRUNE_EVERY:
            return None
        self.rows.changes = 0
        return pruning.prune(self._dialect, self._keep)

    def make(self) -> Visit[None]:
        return schema.make(self._dialect)

    def look(self) -> Visit[int]:
        return schema.look(self._dialect, self._label)

    def now(self) -> Visit[int]:
        return schema.now(self._dialect)

    def cautions(self) -> Visit[list[tuple[str, str]]]:
        """What speaks against the server's set-up, and what to do about it."""
        (result,) = yield Batch((Query(f"SELECT {self._dialect.settings}"),))
        told = []
        for value, (bad, says, remedy) in zip(result.rows[0], self._dialect.cautions, strict=True):
            found = str(int(value) if isinstance(value, bool) else value)
            if found == bad or (bad.startswith("not ") and found != bad[4:]):
                told.append((says, remedy))
        return told

    def _nothing(self, _: Request) -> Visit[Answer]:
        yield from self.look()
        return AGREED

    def _no_past(self, _: Past) -> Visit[Answer]:
        return no_past()
        yield  # pragma: no cover - makes it a visit

    def _no_journal(self, _: Request) -> Visit[Answer]:
        raise Unsupported(
            f"{self._label} keeps no journal: subscribe() to the events of each client, or let the database's own "
            "log tell"
        )
        yield  # pragma: no cover - makes it a visit
