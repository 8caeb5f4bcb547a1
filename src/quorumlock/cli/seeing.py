"""What can be seen of locks by looking again and again, where nobody writes a journal."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..journal import Entry

if TYPE_CHECKING:
    from ..inspecting import Holder, Inspection

SEEN = "seen by looking now and then: what came and went in between is missing"


class Looks:
    """Two looks at all locks, one after the other, make news."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], Holder] = {}
        self._first = True

    def news(self, found: Iterable[Inspection]) -> list[Entry]:
        """What changed since the last look. How a lease ended cannot be seen: released, expired or broken."""
        now = {(one.name, holder.token): holder for one in found for holder in one.holders}
        told = [
            _entry("ended", name, holder)
            for (name, token), holder in self._before.items()
            if (name, token) not in now
        ]
        told += [
            _entry("held" if self._first else "acquired", name, holder)
            for (name, token), holder in now.items()
            if (name, token) not in self._before
        ]
        self._before, self._first = now, False
        return told


def _entry(what: str, name: str, holder: Holder) -> Entry:
    at = holder.since if what == "held" and holder.since is not None else time.time()
    who = f"{holder.host}:{holder.pid}" if holder.host else ""
    return Entry(at, what, name, holder.fence, who, holder.note or ("foreign" if holder.foreign else ""))


def matching(pattern: str) -> Callable[[str], bool]:
    """Does a name match? * and ? stand for anything, as for `ls`."""
    wanted = re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
    return lambda name: wanted.match(name) is not None
