"""A pytest plugin for `make test-profile`: seconds and CPU of every test and every fixture.

CPU is that of this process and of those that it has waited for: a server's counts where it is stopped.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

PROFILE = "QUORUMLOCK_PROFILE"
"""Names the folder to which this process writes its part; it is not handed down to others."""


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Profile:
    """The plugin."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"{os.getpid()}.jsonl").open("w")

    def _write(self, what: str, name: str, started_at: float, used: float) -> None:
        row = {"what": what, "name": name, "seconds": time.monotonic() - started_at, "cpu": cpu() - used}
        self._file.write(json.dumps(row) + "\n")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        started_at, used = time.monotonic(), cpu()
        try:
            return (yield)
        finally:
            self._write("test", item.nodeid, started_at, used)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        started_at, used = time.monotonic(), cpu()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._write("fixture", f"{fixturedef.argname} ({fixturedef.baseid})", started_at, used)

    def pytest_unconfigure(self) -> None:
        self._file.close()


def pytest_configure(config: pytest.Config) -> None:
    if folder := os.environ.pop(PROFILE, None):
        config.pluginmanager.register(Profile(Path(folder)), "profile")
