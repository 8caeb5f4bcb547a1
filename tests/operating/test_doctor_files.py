"""Findings about SQLite files. What no test machine has (a shared or a full disk) is judged on facts."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest

from quorumlock.core.states import READY, NodeState
from quorumlock.doctoring import files

from .examining import examined, only, troubles


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def test_a_file_that_is_well(url: str) -> None:
    for _ in range(2):  # a new one, and one that is there
        assert {one["severity"] for one in examined(url)} == {"ok"}


def test_a_file_that_cannot_be(tmp_path: Path) -> None:
    severity, _, says = only(troubles(f"sqlite:///{tmp_path}/no/locks.db", "file"))
    assert severity == "error"
    assert "folder does not exist" in says
    (tmp_path / "text").write_text("no database " * 100)
    assert "not an SQLite database" in only(troubles(f"sqlite:///{tmp_path}/text", "file"))[2]


def test_somebody_has_switched_the_log_off(url: str, tmp_path: Path) -> None:
    examined(url)
    with sqlite3.connect(tmp_path / "locks.db") as db:
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    severity, _, says = only(troubles(url, "write-ahead log"))
    assert severity == "warning"
    assert "journal_mode" in says
    assert troubles(url, "write-ahead log") == [], "it was mended"


def test_everybody_may_write_it(url: str, tmp_path: Path) -> None:
    examined(url)
    tmp_path.chmod(0o755)
    (tmp_path / "locks.db").chmod(0o666)
    assert only(troubles(url, "access"))[0] == "warning"
    tmp_path.chmod(0o700)
    assert troubles(url, "access") == [], "nobody else gets into the folder"
    (tmp_path / "locks.db").chmod(0o600)
    tmp_path.chmod(0o777)
    assert only(troubles(url, "access"))[0] == "warning"
    tmp_path.chmod(0o1777)
    assert troubles(url, "access") == [], "as in /tmp, where nobody removes what is another's"


MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
server:/export /srv nfs4 rw 0 0
tmpfs /srv/local tmpfs rw 0 0
server:/more /my\040files nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/locks.db", "ext4"),
        ("/srv/locks.db", "nfs4"),
        ("/srv/local/locks.db", "tmpfs"),
        ("/srvx/locks.db", "ext4"),
        ("/my files/locks.db", "nfs"),
    ],
)
def test_the_innermost_mount_counts(path: str, kind: str) -> None:
    assert files.filesystem(path, MOUNTS) == kind
    assert files.filesystem(path, "") is None


def test_this_machine_is_understood(tmp_path: Path) -> None:
    state = NodeState("sqlite:x", READY, "", None, "sqlite", "3", 0.0, 0.0, 0.0)
    facts = files.gather(str(tmp_path / "x.db"), lambda: state)
    assert facts.filesystem
    assert facts.free
    assert facts.wal is None
    assert not list(files.local(facts)) or facts.filesystem in files.NETWORKED
    networked = dataclasses.replace(facts, filesystem="nfs4")
    assert [one.severity for one in files.local(networked)] == ["error"]
    assert [one.severity for one in files.space(dataclasses.replace(facts, free=1_000_000))] == ["warning"]
