"""Histories of locks as JSON lines: what an entry is, reading them with an eye for garbage, and recording them.

Each line is one object, as in Jepsen's histories:

    type      invoke, then ok (it happened), fail (it did not) or unknown (nobody knows; `info` says the same)
    process   a number or a text; a process does one thing at a time
    f         acquire, release, add or read; extend and lost, which are told when they happen and are not invoked
    value     see below; may be missing
    name      which lock or set, if there are several
    time      a number, on one clock for all processes, in any one unit

    acquire ok {"fence": 7, "until": 12.5}    both may be missing; a bare number is a fence
    extend ok  {"until": 13.0}                with "fence" if the process may have several leases
    add        an element: put into the set by reading, thinking, and writing all of it back
    read ok    the list of all elements

A line of type `info` from a process with nothing open is a remark, mostly of the nemesis. Three are understood:
"broken" with {"until": 14.0} (what the lock relies on does not hold meanwhile), "healed" (all faults are over),
and "no promise" (what befalls `name` is counted, and no fault; a list as value: for these reasons).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TYPES = ("invoke", "ok", "fail", "unknown", "info")
TOLD = ("extend", "lost")
"""They need no invocation: a keeper renews while its process does something else."""


class Garbage(ValueError):
    """A line that is no entry of a history; says which and why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `invoked_at` is set for a completion: when what it completes was invoked."""

    line: int
    type: str
    process: int | str
    f: str
    time: float
    value: Any = None
    name: str = ""
    invoked_at: float | None = None

    @property
    def remark(self) -> bool:
        return self.type == "info"


def read(lines: Iterable[str]) -> list[Entry]:
    """All entries, each completion matched with its invocation; raises Garbage at the first line that is none."""
    return list(_matched(_parsed(number, line) for number, line in enumerate(lines, 1) if line.strip()))


def _parsed(number: int, line: str) -> Entry:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Garbage(number, f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Garbage(number, f"an object was expected, not {type(found).__name__}")
    for field in ("type", "process", "f", "time"):
        if field not in found:
            raise Garbage(number, f"{field!r} is missing")
    kind, process, time = found["type"], found["process"], found["time"]
    if kind not in TYPES:
        raise Garbage(number, f"type is to be one of {', '.join(TYPES)}, not {kind!r}")
    if not isinstance(process, int | str) or isinstance(process, bool):
        raise Garbage(number, f"process is to be a number or a text, not {process!r}")
    if not isinstance(found["f"], str):
        raise Garbage(number, f"f is to be a text, not {found['f']!r}")
    name = found.get("name") or ""
    if not isinstance(name, str):
        raise Garbage(number, f"name is to be a text, not {name!r}")
    if not _is_time(time):
        raise Garbage(number, f"time is to be a number, not {time!r}")
    value = found.get("value")
    _check_value(number, kind, found["f"], value)
    return Entry(number, kind, process, found["f"], time, value, name)


def _is_time(value: object) -> bool:
    """Infinity and NaN are numbers to Python's JSON, and no times."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _check_value(number: int, kind: str, f: str, value: Any) -> None:
    if f in ("acquire", "extend") and kind == "ok":
        until, fence = terms(value)
        if until is not None and not _is_time(until):
            raise Garbage(number, f"until is to be a time, not {until!r}")
        if fence is not None and (not isinstance(fence, int) or isinstance(fence, bool)):
            raise Garbage(number, f"fence is to be a whole number, not {fence!r}")
        if f == "extend" and until is None:
            raise Garbage(number, "an extension is to say until when")
    if f == "add" and not isinstance(value, int | str):
        raise Garbage(number, f"an element is to be a number or a text, not {value!r}")
    if f == "read" and kind == "ok":
        elements = value if isinstance(value, list) else [None]
        if not all(isinstance(one, int | str) for one in elements):
            raise Garbage(number, "what was read is to be a list of numbers or texts")
    if kind == "info" and f == "no promise":
        reasons = value if isinstance(value, list) else [] if value is None else [None]
        if not all(isinstance(one, str) for one in reasons):
            raise Garbage(number, f"no promise is to be a list of reasons, not {value!r}")
    if kind == "info" and f == "broken" and not (isinstance(value, dict) and _is_time(value.get("until"))):
        raise Garbage(number, "what is broken is to say until when")


def terms(value: Any) -> tuple[Any, Any]:
    """(until, fence) of what was acquired or extended."""
    if isinstance(value, dict):
        return value.get("until"), value.get("fence")
    return None, value


def _matched(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Keeps to the rules of a process: one thing at a time, and nothing is completed that was not invoked."""
    open_: dict[int | str, Entry] = {}
    last: dict[int | str, float] = {}
    for entry in entries:
        process, mine = entry.process, open_.get(entry.process)
        who = f"process {process}"
        if entry.time < last.get(process, entry.time):
            raise Garbage(entry.line, f"{who} goes back in time, from {last[process]} to {entry.time}")
        last[process] = entry.time
        if entry.type == "invoke":
            if mine is not None:
                raise Garbage(entry.line, f"{who} invokes {entry.f} while its {mine.f} of line {mine.line} is open")
            open_[process] = entry
            yield entry
        elif (entry.type == "ok" and entry.f in TOLD) or (entry.type == "info" and mine is None):
            yield entry
        elif mine is None:
            raise Garbage(entry.line, f"{who} completes {entry.f}, which it has not invoked")
        elif (mine.f, mine.name) != (entry.f, entry.name):
            raise Garbage(entry.line, f"{who} completes {entry.f}, but invoked {mine.f} in line {mine.line}")
        else:
            del open_[process]
            until, _ = terms(entry.value) if (entry.type, entry.f) == ("ok", "acquire") else (None, None)
            if until is not None and until < mine.time:
                raise Garbage(entry.line, f"the lease of {who} was over before it was asked for")
            kind = "unknown" if entry.type == "info" else entry.type
            value = mine.value if entry.value is None and entry.f == "add" else entry.value
            yield Entry(entry.line, kind, process, entry.f, entry.time, value, entry.name, mine.time)


class Recorder:
    """Writes one process's lines. Each is one write to the file, so that a SIGKILL leaves whole lines."""

    def __init__(self, path: Path, process: int | str, name: str = "") -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._who = {"process": process} | ({"name": name} if name else {})

    def __call__(self, kind: str, f: str, time: float, value: Any = None, **more: Any) -> None:
        entry = {"type": kind, **self._who, "f": f, "value": value, "time": round(time, 6), **more}
        os.write(self._file, json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)
