"""The Lua scripts, each in a file of its own; its head says KEYS, ARGV and answers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple


class Script(NamedTuple):
    source: str
    sha: str


def load(*names: str, standing: bool = True) -> Script:
    """The scripts `names` as one, with the check of the marker in front where it is needed."""
    here = Path(__file__).parent
    files = ["standing", *names] if standing else names
    source = "\n".join(here.joinpath(f"{file}.lua").read_text(encoding="utf-8") for file in files)
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


ACQUIRE = load("acquire")
QUEUE = load("turn", "acquire")
READ = load("turn", "read")
ANY = load("slots", "turn", "acquire")
ALL = load("tell", "all")
CONFIRM = load("confirm")
CONFIRM_MANY = load("confirm_many")
EXTEND = load("extend")
HEAL = load("heal")
BREAK = load("tell", "break")
LOOK = load("look")
DOWNGRADE = load("tell", "downgrade")
RELEASE = load("release", standing=False)
RELEASE_MANY = load("tell", "release_many", standing=False)
UNREAD = load("tell", "unread", standing=False)
JOIN = load("join", standing=False)
CELL = load("cell")
INSPECT = load("inspect")
INSPECT_MANY = load("inspect_many")
SCAN = load("scan", standing=False)

SOURCES: dict[object, str] = {
    script.sha: script.source for script in list(globals().values()) if isinstance(script, Script)
}
"""By hash."""
