"""Fences in real databases, by the connections that people have: refused, held, and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite
import asyncmy
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from quorumlock.guards import Claim, FencingMiddleware, SQLFences, fencing_headers

from .sql_fixtures import Find, empty
from .test_http_middleware import App, ask, problem
from .test_http_stores import admitted, waits

pytestmark = pytest.mark.real_time(0.3)
SEVEN, EIGHT = Claim("report", 7), Claim("report", 8)

Connect = Callable[[], Any]


def alchemy(url: str) -> Connect:
    connect: Connect = create_async_engine(url, poolclass=NullPool).connect
    return connect


WAYS: dict[str, Callable[[int, Path], Connect]] = {
    "sqlite by aiosqlite": lambda port, file: lambda: aiosqlite.connect(file, timeout=20),
    "sqlite by sqlalchemy": lambda port, file: alchemy(f"sqlite+aiosqlite:///{file}"),
    "postgresql by psycopg": lambda port, file: (
        lambda: psycopg.AsyncConnection.connect(f"postgresql://test@127.0.0.1:{port}/postgres")
    ),
    "postgresql by sqlalchemy": lambda port, file: alchemy(f"postgresql+psycopg://test@127.0.0.1:{port}/postgres"),
    "mysql by asyncmy": lambda port, file: (
        lambda: asyncmy.connect(host="127.0.0.1", port=port, user="root", db="test")
    ),
    "mysql by sqlalchemy": lambda port, file: alchemy(f"mysql+asyncmy://root@127.0.0.1:{port}/test"),
}


@pytest.fixture(params=WAYS)
def store(request: pytest.FixtureRequest, find_database: Find, tmp_path: Path) -> SQLFences:
    kind = request.param.partition(" ")[0]
    server = find_database(kind)
    if server is not None:
        empty(kind, server)
    return SQLFences(WAYS[request.param](server.port if server else 0, tmp_path / "fences.db"))


def test_a_database_remembers_and_holds(store: SQLFences) -> None:
    async def fail() -> None:
        async with store.hold(Claim("other", 2)):
            raise ZeroDivisionError

    async def main() -> None:
        await store.create()
        assert await waits(store)  # seven holds back eight
        assert not await admitted(store, SEVEN)
        assert await admitted(store, EIGHT)
        with pytest.raises(ZeroDivisionError):
            await fail()
        assert not await admitted(store, Claim("other", 1)), "the mark was committed before the request was handled"
        assert await admitted(store, Claim("other", 2))

    asyncio.run(main())


def test_a_missing_table_is_told(store: SQLFences) -> None:
    async def main() -> None:
        with pytest.raises(Exception, match="create"):
            await admitted(store, SEVEN)

    asyncio.run(main())


@pytest.mark.parametrize("resource", ["a\0b", "a" * 256])
def test_a_resource_that_cannot_be_stored_is_the_clients_mistake(resource: str, tmp_path: Path) -> None:
    store = SQLFences(lambda: aiosqlite.connect(tmp_path / "fences.db"))
    asyncio.run(store.create())
    app = App()
    answer = ask(FencingMiddleware(app, store=store), fencing_headers(Claim(resource, 5)))
    assert problem(answer) == (400, "fence-malformed")
    assert app.seen == []
