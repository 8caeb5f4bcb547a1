"""How locks are shown to people and to programs; what `ls`, `show`, `wait` and `break` share."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .parsing import add_fleet_options, add_output_options

SLOTS_SEEN = 1000

if TYPE_CHECKING:
    from ..errors import NotAcquired
    from ..inspecting import Holder, Inspection
    from ..sync.locker import Locker


def add_looking_options(parser: argparse.ArgumentParser) -> None:
    add_output_options(parser)
    add_fleet_options(parser)


def add_pattern(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="of names (default: *)")


def as_json(found: Inspection) -> dict[str, Any]:
    """All that is known; tokens only by their first characters."""
    import dataclasses

    return dataclasses.asdict(found)


def print_json(what: object) -> None:
    import json

    print(json.dumps(what, ensure_ascii=False))


def shown(text: str | None) -> str:
    """A name or a note, on one line of a terminal, whatever is in it."""
    return re.sub(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\U0010ffff]", lambda found: repr(found[0])[1:-1], text or "")


def who(holder: Holder | None) -> str:
    if holder is None:
        return ""
    if holder.foreign:
        return f"foreign ({holder.token})"
    return f"{holder.host or '?'}:{holder.pid or '?'}{f' {holder.where}' if holder.where else ''}"


def busy_with(busy: NotAcquired, locks: Locker, name: str, slots: int | None) -> str:
    """That a lock was not obtained, and who has it: whoever reads this would ask that next."""
    from ..errors import LockError

    try:
        found = slots_of(locks, name) if slots else [locks.inspect(name)]
        holders = [holder for one in found for holder in one.holders]
    except LockError:  # what was to be said is more important
        holders = []
    if not holders:
        return str(busy)
    told = str(busy) if busy.tally is None else str(busy).removesuffix(f": {busy.tally.describe()}")
    return f"{told}: {', '.join(f'by {described(one)}' for one in holders[:3])}"


def slots_of(locks: Locker, name: str) -> list[Inspection]:
    """The slots of a semaphore of this name that are taken: each is a lock of its own."""
    taken = locks.survey(f"{name}#*", SLOTS_SEEN)
    return [one for one in taken if one.name.removeprefix(f"{name}#").isdecimal()]


def described(holder: Holder) -> str:
    """Who it is, for how long it has the lock, and what it says of that."""
    since = f" for {ago(holder.since)}" if holder.since is not None else ""
    return f"{who(holder)}{since}{f' ({shown(holder.note)})' if holder.note else ''}"


def ago(since: float | None) -> str:
    """How long it has been, as the clock of a node has it."""
    return "" if since is None else span(max(0.0, time.time() - since))


def span(seconds: float) -> str:
    """12.3s, 4m05s, 3h07m, 2d04h."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 48 else f"{hours // 24}d{hours % 24:02d}h"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as they must be."""
    lines = [tuple(titles), *(tuple(shown(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
