"""Fixtures of hazard tests, and `--canary NAME`: the same tests against a library that was broken on purpose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from quorumlock.lab.servers import Server, Servers
from tests.live import fixtures
from tests.live.attribution import every_answer_is_its_own
from tests.live.fixtures import keep, put_proxy
from tests.support.proxy import Proxy

from . import canaries
from .driven import ahead, driven, driven_tasks, driven_threads
from .late import Bench
from .sides import Side

__all__ = ["ahead", "driven", "driven_tasks", "driven_threads", "put_proxy"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("canaries")
    group.addoption("--canary", metavar="NAME", help="break the library so, and run the tests that must find out")
    group.addoption("--canary-report", metavar="FILE", help="one line of JSON for each phase of each test")


def pytest_configure(config: pytest.Config) -> None:
    fixtures.pytest_configure(config)
    if name := config.getoption("canary", None):
        if name not in canaries.load():
            raise pytest.UsageError(f"there is no canary {name!r}")
        canaries.apply(name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fixtures.pytest_collection_modifyitems(config, items)
    if name := config.getoption("canary", None):
        keep(config, items, canaries.CANARIES[name].concerns)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:  # type: ignore[misc]
    report: pytest.TestReport = yield
    if file := item.config.getoption("canary_report", None):
        error = call.excinfo
        told = {
            "test": f"{item.path.stem}::{item.name}",
            "when": report.when,
            "outcome": report.outcome,
            "error": error.typename if error is not None else "",
            "text": str(error.value)[:2000] if error is not None else "",
        }
        with Path(file).open("a") as lines:
            print(json.dumps(told), file=lines)
    return report


@pytest.fixture(scope="session")
def crowd(crowd: Callable[[str], Servers]) -> Callable[[str], Servers]:
    """Where a canary flies, the servers of the process that it was forked from."""
    lent = canaries.lent_servers
    return crowd if lent is None else lambda kind: lent


@pytest.fixture(params=["threads", "asyncio"])
def side(request: pytest.FixtureRequest, servers: Servers) -> Side:
    """Three nodes, and one of the two fronts."""
    return Side(str(request.param), servers.servers[:3])


@pytest.fixture(params=[1, 3], ids=["1-node", "3-nodes"])
def bench(request: pytest.FixtureRequest, servers: Servers, put_proxy: Callable[[Server], Proxy]) -> Bench:
    made = Bench(servers.servers[: int(request.param)], put_proxy)

    async def prepare() -> None:
        async with made.locker() as locks:
            await locks.init_fleet()
            await every_answer_is_its_own(locks, made.nodes)

    asyncio.run(prepare())
    return made
