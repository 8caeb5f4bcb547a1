"""Checks histories of locks, ours and others', offline: `python -m quorumlock.lab.history FILE...`.

`history_lines` says what a line is, `history_mutex` when a lock was a mutex. A set that is kept by reading it under
the lock, thinking, and writing all of it back has lost what was added and is not in the last read.

Exit code 0: nothing is wrong but what is excused; 1: something is, and is named; 2: the file is no history.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .history_lines import Entry, Garbage, read
from .history_mutex import Fault, check_mutex, holds_of

ALL = "*"
SHOWN = 10
"""Faults that are told in full."""


@dataclass(slots=True)
class Verdict:
    """What came of one name."""

    name: str
    waived: frozenset[str] = frozenset()
    """Reasons that are counted and no fault here; `ALL` of them for somebody else's lock."""
    acquired: int = 0
    refused: int = 0
    unknown: int = 0
    added: int = 0
    lost: int = 0
    errors: int = 0
    """Completions that carry an error other than a refusal."""
    gaps: list[float] = field(default_factory=list)
    """From one acquisition to the next."""
    faults: list[Fault] = field(default_factory=list)

    def count(self, reason: str, excused: bool) -> int:
        return sum(fault.reason == reason and fault.excused is excused for fault in self.faults)

    @property
    def wrong(self) -> list[Fault]:
        return [fault for fault in self.faults if not fault.excused and self.promises(fault.reason)]

    def promises(self, reason: str) -> bool:
        return not self.waived & {reason, ALL}


def check(entries: Iterable[Entry]) -> list[Verdict]:
    """A verdict for each name, in the order of their appearance."""
    by_name: dict[str, list[Entry]] = defaultdict(list)
    remarks: list[Entry] = []
    for entry in entries:
        if entry.remark:
            remarks.append(entry)
        else:
            by_name[entry.name].append(entry)
    broken = [(one.time, one.value["until"]) for one in remarks if one.f == "broken"]
    healed_at = max((one.time for one in remarks if one.f == "healed"), default=None)
    waived = {one.name: frozenset(one.value or [ALL]) for one in remarks if one.f == "no promise"}
    return [_verdict(name, own, broken, healed_at, waived.get(name, frozenset())) for name, own in by_name.items()]


def _verdict(
    name: str,
    entries: list[Entry],
    broken: list[tuple[float, float]],
    healed_at: float | None,
    waived: frozenset[str],
) -> Verdict:
    holds = holds_of(entries)
    verdict = Verdict(name, waived, len(holds.all), holds.refused, holds.unknown)
    verdict.faults = [*holds.wrong, *check_mutex(holds.all, broken), *_lost_updates(entries)]
    verdict.added = sum(entry.f == "add" and entry.type == "ok" for entry in entries)
    verdict.lost = verdict.count("lost update", excused=False)
    verdict.errors = sum(isinstance(entry.value, dict) and "error" in entry.value for entry in entries)
    times = sorted(hold.ok_at for hold in holds.all)
    verdict.gaps = [after - before for before, after in itertools.pairwise(times)]
    if healed_at is not None and holds.all and times[-1] < healed_at:
        verdict.faults.append(Fault("no progress", f"nobody got {name!r} after the faults were over"))
    return verdict


def _lost_updates(entries: list[Entry]) -> list[Fault]:
    """No excuse: a guard relies on no clock. What was added in doubt may be there or not."""
    reads = [entry for entry in entries if entry.f == "read" and entry.type == "ok"]
    if not reads:
        return []
    final = max(reads, key=lambda entry: entry.time)
    there = set(final.value)
    faults = [
        Fault("lost update", f"{entry.value!r}, added in line {entry.line}, is not in the last read")
        for entry in entries
        if entry.f == "add" and entry.type == "ok" and entry.value not in there and entry.time <= final.time
    ]
    tried = {entry.value for entry in entries if entry.f == "add" and entry.type in ("invoke", "ok")}
    refused = {entry.value for entry in entries if entry.f == "add" and entry.type == "fail"}
    faults += [
        Fault("never added", f"{one!r} was read, and nobody added it") for one in sorted(there - tried, key=str)
    ]
    faults += [Fault("added though refused", f"{one!r}") for one in sorted(there & refused, key=str)]
    return faults


COLUMNS = ("", "acquired", "refused", "unknown", "overlaps", "excused", "fences", "added", "lost", "other")


def table(verdicts: Sequence[Verdict]) -> str:
    rows: list[tuple[object, ...]] = [COLUMNS]
    for one in verdicts:
        fences = one.count("fence does not grow", excused=False) + one.count("fence used twice", excused=False)
        overlaps, excused = one.count("overlap", excused=False), one.count("overlap", excused=True)
        unexcused = sum(not fault.excused for fault in one.faults)
        other = unexcused - fences - overlaps - one.lost
        name = (one.name or "lock") + ("*" if ALL in one.waived else "")
        rows.append(
            (name, one.acquired, one.refused, one.unknown, overlaps, excused, fences, one.added, one.lost, other)
        )
    width = max(len(str(row[0])) for row in rows) + 2
    lines = [f"{row[0]:<{width}}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows]
    if any(ALL in one.waived for one in verdicts):
        lines.append("* counted as it is; nothing is promised there")
    lines += [
        f"{one.name}: {', '.join(sorted(one.waived))} is counted as it is; there is no promise against it"
        for one in verdicts
        if one.waived - {ALL}
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m quorumlock.lab.history",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JSON lines; one history each")
    worst = 0
    for path in parser.parse_args(arguments).files:
        try:
            with path.open(encoding="utf-8") as lines:
                verdicts = check(read(lines))
        except (OSError, UnicodeDecodeError, Garbage) as error:
            print(f"{path}: {_said(error)}", file=sys.stderr)
            worst = 2
            continue
        if not verdicts:
            print(f"{path}: no history: it has no entries", file=sys.stderr)
            worst = 2
            continue
        print(table(verdicts))
        wrong = [(one.name, fault) for one in verdicts for fault in one.wrong]
        for name, fault in wrong[:SHOWN]:
            print(f"{path}: {fault.reason}{f' ({name})' if name else ''}: {fault.text}")
        if len(wrong) > SHOWN:
            print(f"{path}: and {len(wrong) - SHOWN} more")
        worst = max(worst, 1 if wrong else 0)
    return worst


def _said(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"no text: byte {error.start} is no UTF-8"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
