"""What every command shares: exit codes, and a way to complain that shows no secret."""

from __future__ import annotations

import os
import re
import sys

EX_OK = 0
EX_NOT_DONE = 1
EX_USAGE = 64
EX_UNAVAILABLE = 69
EX_HELD = 75
EX_LOST = 76
EX_CANNOT_RUN = 126
EX_NOT_FOUND = 127
EX_INTERRUPTED = 130
EX_UNREAD = 141

COMMANDS = {
    " or Locker.init_fleet()": "",
    "init_fleet(force=True)": "`quorumlock init --force`",
    "init_fleet needs": "`quorumlock init` needs",
    "init_fleet did": "`quorumlock init` did",
    "fleet='name'": "--fleet NAME",
}


def scrubbed(text: str) -> str:
    """`text` with the user, password and query of every URL left out."""
    return re.sub(r"://\S*@", "://***@", re.sub(r"(://[^\s?]*)\?\S*", r"\1?…", text))


def nobody_reads() -> None:
    """Whoever read stdout has seen enough. Python would complain of it when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_words(error: Exception) -> str:
    """What went wrong, as somebody who calls commands knows things; no secret, and on one line."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(scrubbed(spoken(text)).split())


def spoken(text: str) -> str:
    """With the names of commands, for those of the library."""
    for call, command in COMMANDS.items():
        text = text.replace(call, command)
    return text


def code_of(error: Exception) -> int:
    """Whose fault it is."""
    from ..errors import EngineError, NoQuorum

    return EX_UNAVAILABLE if isinstance(error, NoQuorum | EngineError) else EX_USAGE


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"quorumlock: {' '.join(scrubbed(text).split())}", file=sys.stderr)


def say(wanted: bool, text: str) -> None:
    """The same, if somebody wants to know."""
    if wanted:
        complain(text)


def tell(what: object) -> None:
    """A line of JSON on stderr: stdout is the command's."""
    import json

    print(json.dumps(what), file=sys.stderr)
