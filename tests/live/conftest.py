"""Fixtures of live tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import quorumlock

from .fixtures import put_proxy, pytest_collection_modifyitems, pytest_configure

__all__ = ["connect", "put_proxy", "pytest_collection_modifyitems", "pytest_configure"]


@pytest.fixture
def connect(connect: Callable[..., quorumlock.Locker]) -> Callable[..., quorumlock.Locker]:
    """As everywhere; but a node is not late before a busy machine has had time to run it."""

    def make(*urls: object, **options: object) -> quorumlock.Locker:
        return connect(*urls, **{"node_timeout": 1.0, **options})

    return make
