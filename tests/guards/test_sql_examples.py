"""The examples of SQL guards run, and end as they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "end"),
    [("guard_sql", "total: 10"), ("guard_sqlalchemy", "total: 10"), ("guard_column", "state: sent")],
)
def test_an_example_runs(name: str, end: str) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "refused: " in done.stdout
    assert done.stdout.splitlines()[-1] == end
