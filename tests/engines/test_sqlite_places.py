"""The SQLite engine: which file a URL names, and what is found there."""

from __future__ import annotations

import os
import pickle
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quorumlock
from quorumlock import ConfigurationError, EngineError
from quorumlock.core.requests import Extend, Join
from quorumlock.core.votes import Cause
from quorumlock.engines.sqlite import SqliteEngine, schema

from .test_sqlite import File, Make, file, granted, kept, make, open_files, refused, settings

__all__ = ["file", "make"]  # fixtures


def label(url: str) -> str:
    return SqliteEngine(url, settings()).labels[0]


# URLs.


def test_paths_are_those_of_sqlalchemy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert label("sqlite:///rel/x.db") == f"sqlite:{tmp_path}/rel/x.db"
    assert label("sqlite:///./x.db") == f"sqlite:{tmp_path}/x.db"
    assert label("sqlite:////var/lib/x.db") == "sqlite:/var/lib/x.db"
    assert label("sqlite:////a%20b%2Fc%3F%23%25.db") == "sqlite:/a b/c?#%.db"
    assert label("sqlite:////%C3%BC.db") == label("sqlite:////ü.db") == "sqlite:/ü.db"


def test_a_relative_path_is_that_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with quorumlock.connect("sqlite:///x.db") as locks:
        monkeypatch.chdir("/")
        with locks.lock("a", keep=False):
            assert (tmp_path / "x.db").exists()


@pytest.mark.parametrize("name", ["a b.db", "?.db", "ü.db", "%41.db", "x.db-wal"])
def test_a_file_may_have_any_name(make: Make, tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/" + "".join(f"%{byte:02X}" for byte in name.encode("utf-8"))
    with quorumlock.connect(url) as locks, locks.lock("a", keep=False):
        assert (tmp_path / name).exists()


def test_a_path_that_is_no_text_can_be_used_and_named(tmp_path: Path) -> None:
    with quorumlock.connect(f"sqlite:///{tmp_path}/%FF.db") as locks, locks.lock("a", keep=False):
        assert os.path.exists(os.fsencode(tmp_path) + b"/\xff.db")
    assert locks.engine.labels[0].endswith("/\ufffd.db")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://:memory:", "memory://"),
        ("sqlite://host/x.db", "host"),
        ("sqlite://x.db", "sqlite:///"),
        ("sqlite://user@host/x.db", "host"),
        ("sqlite:///x.db?timeout=5", "%3F"),
        ("sqlite://?mode=ro", "%3F"),
        ("sqlite:///x#1.db", "%23"),
        ("sqlite:///", "no file"),
        ("sqlite:////", "no file"),
        ("sqlite:////var/lib/", "no file"),
        ("sqlite:///x%00.db", "NUL"),
        ("sqlite:///~/x.db", "~"),
    ],
)
def test_a_url_that_means_nothing_is_refused_at_once(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        quorumlock.connect(url)


def test_settings_that_are_about_fleets_do_not_matter(tmp_path: Path) -> None:
    for chosen in ({"quarantine": True}, {"durable": True}, {"fence_ttl": 300.0}, {"fleet": "x"}, {"group": "g"}):
        told: dict[str, Any] = chosen
        with quorumlock.connect(f"sqlite:///{tmp_path}/x.db", **told) as locks, locks.lock("a", keep=False):
            pass


@pytest.mark.parametrize("state", ["", "relative/is/ignored", "{tmp}/state"])
def test_the_default_is_a_file_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.delenv("QUORUMLOCK_URL", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", state.format(tmp=tmp_path))
    folder = tmp_path / ("state/quorumlock" if "tmp" in state else "home/.local/state/quorumlock")
    for urls in (None, "sqlite://"):
        with quorumlock.connect(urls) as locks:
            assert locks.engine.labels == (f"sqlite:{folder}/locks.db",)
            assert urls is not None or not (tmp_path / "home").exists(), "connect() touches no disk"
            with locks.lock("a", keep=False):
                assert (folder / "locks.db").exists()
    assert folder.stat().st_mode & 0o777 == 0o700


# What is at the path.


@pytest.mark.parametrize(
    ("below", "told"),
    [("missing/x.db", "folder does not exist"), ("plain/x.db", "folder is not a directory"), ("folder", "is a dir"),
     ("fifo", "not a regular file")],
)  # fmt: skip
def test_a_place_where_no_file_can_be_is_my_mistake(make: Make, tmp_path: Path, below: str, told: str) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    one = make(tmp_path / below)
    with pytest.raises(ConfigurationError, match=told) as error:
        one.acquire()
    assert str(one.path) in str(error.value)
    assert open_files(one.path) == []


def test_a_folder_that_is_made_later_will_do(make: Make, tmp_path: Path) -> None:
    one = make(tmp_path / "later/x.db")
    with pytest.raises(ConfigurationError):
        one.ask(Join())
    one.path.parent.mkdir()
    granted(one.acquire())


@pytest.mark.parametrize("text", ["hello", "x" * 5000], ids=["short", "long"])
def test_a_file_that_is_no_database_is_left_alone(make: Make, text: str) -> None:
    one = make()
    one.path.write_text(text)
    for _ in range(2):
        with pytest.raises(EngineError, match="not an SQLite database") as error:
            one.acquire()
        assert error.value.node == str(one.path)
        assert open_files(one.path) == []
    assert one.path.read_text() == text
    one.path.unlink()
    granted(one.acquire())


def test_an_empty_file_becomes_ours(file: File) -> None:
    file.path.touch()
    granted(file.acquire())


def test_the_database_of_another_application_is_left_alone(file: File) -> None:
    file.sql("CREATE TABLE theirs (x)")
    with pytest.raises(ConfigurationError, match="another application"):
        file.acquire()
    assert file.sql("SELECT name FROM sqlite_master") == [("theirs",)]
    assert file.sql("PRAGMA journal_mode") == [("delete",)]


def test_a_newer_format_is_not_touched(make: Make) -> None:
    make().ask(Join())
    one = make()
    one.sql(f"PRAGMA user_version = {schema.FORMAT + 1}")
    with pytest.raises(ConfigurationError, match=r"newer quorumlock.*upgrade"):
        one.acquire()
    assert one.row() is None


def test_a_damaged_file_is_an_error_and_no_lock(make: Make) -> None:
    one = make()
    for n in range(100):
        one.acquire(f"name-{n}")
    one.engine.close()
    damaged = bytearray(one.path.read_bytes())
    damaged[4096:] = b"\xa5" * (len(damaged) - 4096)
    one.path.write_bytes(damaged)
    with pytest.raises(EngineError, match=r"damaged.*move it away") as error:
        make().acquire("b")
    assert error.value.node == str(one.path)
    assert not isinstance(error.value.__cause__, sqlite3.Error)
    assert open_files(one.path) == []


def test_any_other_complaint_of_sqlite_is_told_as_ours(file: File) -> None:
    file.acquire()
    file.sql("DROP TABLE leases")
    with pytest.raises(EngineError, match="no such table") as error:
        file.acquire()
    copy = pickle.loads(pickle.dumps(error.value))
    assert (str(copy), copy.node) == (str(error.value), str(file.path))


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_was_deleted_is_not_locked_in_any_more(make: Make, again: bool) -> None:
    """Else its old users would go on in a file that nobody else can see."""
    one = make()
    fence = granted(one.acquire())
    for old in one.path.parent.glob("locks.db*"):
        old.unlink()
    if again:
        assert granted(make().acquire(token="other")) > fence
        refused(one.ask(Extend((kept(),))), Cause.HELD)
    else:
        refused(one.ask(Extend((kept(),))), Cause.ABSENT)
        assert granted(make().acquire(token="other")) > fence
    refused(one.acquire(token="third"), Cause.HELD)
    assert not any(name.endswith("(deleted)") for name in open_files(one.path))


def test_importing_and_connecting_need_nothing_but_the_standard_library(tmp_path: Path) -> None:
    program = (
        "import sys, quorumlock\n"
        f"with quorumlock.connect('sqlite:///{tmp_path}/x.db') as locks, locks.lock('a', keep=False): pass\n"
        "print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert {name for name in done.stdout.split() if not name.startswith("__")} <= {"quorumlock"} | site_modules()


def site_modules() -> set[str]:
    """What this Python brings with it, in .pth files for one."""
    program = "import sys; print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    return set(done.stdout.split())
