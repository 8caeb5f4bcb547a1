"""Commands called as users call them, but in this process: what they print, and their exit code."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

from quorumlock.cli import main


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def call(*words: str) -> Said:
    """One command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    assert "Traceback" not in err.getvalue()
    return Said(code, out.getvalue(), err.getvalue())
