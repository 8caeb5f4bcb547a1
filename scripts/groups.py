"""Prints the requirements of dependency groups (PEP 735), one a line: pip before 25.1 does not know groups."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def requirements(groups: dict[str, list[Any]], name: str, seen: tuple[str, ...] = ()) -> Iterator[str]:
    """What the group `name` asks for, the groups it includes among them."""
    if name not in groups:
        raise SystemExit(f"there is no dependency group {name!r}; known: {', '.join(groups)}")
    if name in seen:
        raise SystemExit(f"dependency groups include one another: {' → '.join([*seen, name])}")
    for entry in groups[name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from requirements(groups, entry["include-group"], (*seen, name))


if __name__ == "__main__":
    known = tomllib.loads(PROJECT.read_text())["dependency-groups"]
    wanted = dict.fromkeys(line for name in sys.argv[1:] for line in requirements(known, name))
    print("\n".join(wanted))
