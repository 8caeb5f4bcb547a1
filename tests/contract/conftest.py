"""The stages of the contract: 1, 3 and 5 nodes, threads and asyncio."""

from __future__ import annotations

import pytest

from quorumlock.lab.servers import Servers, kinds

from .stage import Stage


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "takes_time: waits for something to expire; more stages would show no more")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Five nodes of one kind will do; a case that waits for an expiry is played on fewer stages still."""
    first = (kinds() or [""])[0]

    def wanted(item: pytest.Item) -> bool:
        if item.get_closest_marker("takes_time") is None:
            return "5-nodes" not in item.name or first in item.name
        return "5-nodes" not in item.name and ("1-nodes" in item.name or first in item.name)

    dropped = [item for item in items if not wanted(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if wanted(item)]


@pytest.fixture(params=["threads", "asyncio"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[1, 3, 5], ids=lambda count: f"{count}-nodes")
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def stage(servers: Servers, count: int, side: str) -> Stage:
    return Stage(servers, count, side)
