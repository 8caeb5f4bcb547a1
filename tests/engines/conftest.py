"""Servers that the tests of several files share."""

from collections.abc import Iterator

import pytest

from tests.support.forkserver import ForkServer

from .etcd_fixtures import etcd_server
from .sql_servers import poor, shared_place

__all__ = ["etcd_server", "poor", "shared_place"]


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Starts processes cheaply."""
    with ForkServer() as server:
        yield server
