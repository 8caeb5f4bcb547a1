"""How long the tests took: tables for people, and `tests/seconds.json`, by which lanes are cut."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SECONDS = Path(__file__).parent.parent / "tests" / "seconds.json"
NOTED = 0.5
"""Files that take less are not noted one by one."""
SHOWN = 20
"""Rows of a table."""

Row = dict[str, Any]


def measured() -> dict[str, float]:
    """By file, the seconds that its tests took."""
    known: dict[str, float] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    return known


def read(folder: Path) -> list[Row]:
    """What the plugin `tests/support/profile.py` has written, in all processes of a run."""
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


def table(named: Iterable[tuple[str, Row]]) -> dict[str, tuple[float, float, int]]:
    """By name: seconds, CPU and how many there were; the slowest first."""
    sums: dict[str, tuple[float, float, int]] = {}
    for name, row in named:
        seconds, cpu, count = sums.get(name, (0.0, 0.0, 0))
        sums[name] = (seconds + row["seconds"], cpu + row["cpu"], count + 1)
    return dict(sorted(sums.items(), key=lambda pair: -pair[1][0]))


def show(rows: list[Row]) -> None:
    tests = [row for row in rows if row["what"] == "test"]
    for title, named in (
        ("folders", [(row["name"].split("/")[1], row) for row in tests]),
        ("files", [(row["name"].partition("::")[0], row) for row in tests]),
        ("tests", [(row["name"], row) for row in tests]),
        ("fixtures", [(row["name"], row) for row in rows if row["what"] == "fixture"]),
    ):
        print(f"\n{title}, the slowest first\n   seconds       CPU     count")
        for name, (seconds, cpu, count) in list(table(named).items())[:SHOWN]:
            print(f"{seconds:10.1f}{cpu:10.1f}{count:10}  {name}")


def note(rows: list[Row]) -> None:
    """Writes down how long each file took."""
    files = table((row["name"].partition("::")[0], row) for row in rows if row["what"] == "test")
    noted = {name: round(sums[0], 1) for name, sums in sorted(files.items()) if sums[0] >= NOTED}
    SECONDS.write_text(json.dumps(noted, indent=1) + "\n")
