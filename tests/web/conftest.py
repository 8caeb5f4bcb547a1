"""Fixtures for the dashboard: fleets in memory, and dashboards of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import quorumlock

from .site import Site, served

worlds = itertools.count()
MakeSite = Callable[..., Site]


@pytest.fixture
def locks() -> Iterator[quorumlock.Locker]:
    """A fleet of three, which nobody else has."""
    with quorumlock.connect(f"memory://web-{next(worlds)}?nodes=3") as locker:
        yield locker


@pytest.fixture
def make_site(locks: quorumlock.Locker) -> Iterator[MakeSite]:
    """Dashboards with options of the test's own: `make_site(allow_break=True)`."""
    with ExitStack() as stack:

        def make(**options: Any) -> Site:
            return stack.enter_context(served(options.pop("locks", locks), **options))

        yield make


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A dashboard that needs no token, and breaks locks."""
    return make_site(allow_break=True)
