"""Fixtures of live tests: proxies in front of the shared servers, and which kind of server a test needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from quorumlock.lab.servers import Server, Servers, kinds
from tests.proxy import Proxy

from .attribution import every_answer_is_its_own
from .late import Bench


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_kind: is about the client alone, so one kind of server will do")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps tests that are about the client alone to the first kind of server there is."""
    first = (kinds() or [""])[0]

    def wanted(item: pytest.Item) -> bool:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        return item.get_closest_marker("one_kind") is None or parameters.get("kind", first) == first

    dropped = [item for item in items if not wanted(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if wanted(item)]


@pytest.fixture
def put_proxy() -> Iterator[Callable[[Server], Proxy]]:
    """`put_proxy(server)`: a proxy in front of it, closed at the end."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(Proxy(server))


@pytest.fixture(params=[1, 3], ids=["1-node", "3-nodes"])
def bench(request: pytest.FixtureRequest, servers: Servers, put_proxy: Callable[[Server], Proxy]) -> Bench:
    made = Bench(servers.servers[: int(request.param)], put_proxy)

    async def prepare() -> None:
        async with made.locker() as locks:
            await locks.init_fleet()
            await every_answer_is_its_own(locks, made.nodes)

    asyncio.run(prepare())
    return made
