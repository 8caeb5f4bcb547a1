"""Takes samples of a fleet, through the public API of a Locker, and breaks locks."""

from __future__ import annotations

import time
from typing import Any

from .. import Inspection, Locker, LockError
from . import view
from .board import Sample

LOCKS_MOST = 10_000
PAGES_MOST = 10
"""Pages of the journal in one sample: what is left comes with the next."""


class Source:
    """Remembers how far it has read. Its methods block: call them in a thread."""

    def __init__(self, locker: Locker, breaker: Locker | None = None) -> None:
        self._locker, self._breaker = locker, breaker or locker
        self._cursor: str | None = None

    def sample(self) -> Sample:
        """Looks at everything; what cannot be learnt is left out, with the reason."""
        problems: list[str] = []
        rows, cut, nodes = None, False, None
        entries: list[Any] = []
        kept = None
        try:
            found = self._locker.survey("*", LOCKS_MOST + 1)
            rows = {one.name: view.row(one) for one in found[:LOCKS_MOST] if one.state != "free"}
            cut = len(found) > LOCKS_MOST
        except (LockError, OSError) as error:
            problems.append(str(error))
        try:
            nodes = self._locker.nodes(1)
        except (LockError, OSError) as error:
            problems.append(str(error))
        try:
            entries, kept = self._read()
        except (LockError, OSError) as error:
            problems.append(str(error))
        return Sample(time.time(), rows, cut, nodes, entries, kept, "; ".join(dict.fromkeys(problems)))

    def inspect(self, name: str) -> Inspection:
        found: Inspection = self._locker.inspect(name)
        return found

    def break_(self, name: str, *, fence: int | None, journalled: bool) -> None:
        """`journalled`: have it written down. Where nobody else writes, one entry alone would be no journal."""
        (self._breaker if journalled else self._locker).break_(name, fence=fence)

    def _read(self) -> tuple[list[Any], bool]:
        entries: list[Any] = []
        kept = False
        for _ in range(PAGES_MOST):
            page = self._locker.journal(self._cursor, 1000)
            kept = page.kept
            if not page.kept:
                break
            entries += page.entries
            self._cursor = page.cursor
            if len(page.entries) < 1000:
                break
        return entries, kept
