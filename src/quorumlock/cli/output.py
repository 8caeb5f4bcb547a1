"""What every command shares: exit codes, and a way to complain that shows no secret."""

from __future__ import annotations

import re
import sys

EX_OK = 0
EX_USAGE = 64
EX_UNAVAILABLE = 69
EX_INTERRUPTED = 130


def scrubbed(text: str) -> str:
    """`text` with the user, password and query of every URL left out."""
    return re.sub(r"://\S*@", "://***@", re.sub(r"(://[^\s?]*)\?\S*", r"\1?…", text))


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"quorumlock: {' '.join(scrubbed(text).split())}", file=sys.stderr)
