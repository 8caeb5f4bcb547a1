"""What the tests on real servers share: proxies in front of the servers, and which kind of server a test needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from quorumlock.lab.servers import Server, kinds
from tests.support.proxy import Proxy


def kind_of(item: pytest.Item) -> str | None:
    """The kind of server that a test runs on; None if it does not care."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return str(parameters["kind"]) if "kind" in parameters else None


def keep(config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]) -> None:
    """Deselects the other items."""
    dropped = [item for item in items if not wanted(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if wanted(item)]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_kind: is about the client alone, so one kind of server will do")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps tests that are about the client alone to the first kind of server there is."""
    first = (kinds() or [""])[0]
    keep(config, items, lambda item: item.get_closest_marker("one_kind") is None or kind_of(item) in (None, first))


@pytest.fixture
def put_proxy() -> Iterator[Callable[[Server], Proxy]]:
    """`put_proxy(server)`: a proxy in front of it, closed at the end."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(Proxy(server))
