"""The Lua scripts, each in a file of its own; its head says KEYS, ARGV and answers."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple


class Script(NamedTuple):
    source: str
    sha: str


def load(*names: str, standing: bool = True, noted: bool = False) -> Script:
    """The scripts `names` as one, with the check of the marker in front where it is needed.

    With `noted` it writes down what it does: lines that are comments otherwise are executed (see journal.lua).
    """
    here = Path(__file__).parent
    files = [*(["standing"] if standing else []), *(["journal"] if noted else []), *names]
    source = "\n".join(here.joinpath(f"{file}.lua").read_text(encoding="utf-8") for file in files)
    if noted:
        source = re.sub(r"(?m)^( *)--\+ ", r"\1", source)
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
PAST = load("past", standing=False)
NOTED_ACQUIRE = load("acquire", noted=True)
NOTED_QUEUE = load("turn", "acquire", noted=True)
NOTED_READ = load("turn", "read", noted=True)
NOTED_ANY = load("slots", "turn", "acquire", noted=True)
NOTED_ALL = load("tell", "all", noted=True)
NOTED_BREAK = load("tell", "break", noted=True)
NOTED_DOWNGRADE = load("tell", "downgrade", noted=True)
NOTED_RELEASE = load("release", standing=False, noted=True)
NOTED_RELEASE_MANY = load("tell", "release_many", standing=False, noted=True)
NOTED_UNREAD = load("tell", "unread", standing=False, noted=True)
REFUSED = load("refused", standing=False, noted=True)

NOTED = {
    ACQUIRE.sha: NOTED_ACQUIRE,
    QUEUE.sha: NOTED_QUEUE,
    READ.sha: NOTED_READ,
    ANY.sha: NOTED_ANY,
    ALL.sha: NOTED_ALL,
    BREAK.sha: NOTED_BREAK,
    DOWNGRADE.sha: NOTED_DOWNGRADE,
    RELEASE.sha: NOTED_RELEASE,
    RELEASE_MANY.sha: NOTED_RELEASE_MANY,
    UNREAD.sha: NOTED_UNREAD,
}
"""What a client with a journal says instead."""

SOURCES: dict[object, str] = {
    script.sha: script.source for script in list(globals().values()) if isinstance(script, Script)
}
"""By hash."""
