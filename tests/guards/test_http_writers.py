"""Fifty client processes and one real service: in order, nothing lost; a store that does not hold is found out."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from quorumlock.guards import Claim, FencingAuth
from quorumlock.lab.servers import Server, kinds

from . import http_service
from .writers import Outcome, entries, run, violations, was_a_contest

pytestmark = pytest.mark.real_time(1)
Start = Callable[[str], str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the service with a store, and says where it is."""
    with ExitStack() as stack:
        yield lambda store: stack.enter_context(http_service.started(tmp_path, store))


def test_a_real_service_answers_as_it_should(start: Start, tmp_path: Path) -> None:
    where = start("memory")
    with httpx.Client(base_url=f"http://{where}", trust_env=False) as client:
        assert client.put("/chain", auth=FencingAuth(Claim("http", 8))).status_code == 204
        stale = client.put("/chain", auth=FencingAuth(Claim("http", 7)), content=b"x" * 1_000_000)
        assert (stale.status_code, stale.json()["seen"]) == (412, 8)
        assert client.put("/chain").status_code == 428
        assert client.put("/chain", auth=FencingAuth(Claim("other", 9))).status_code == 400
        assert entries(client.get("/chain").content) == [8]


def test_a_client_that_goes_away_does_not_keep_the_door_shut(start: Start) -> None:
    where = start("memory")
    for fence in range(1, 6):
        gone = http.client.HTTPConnection(where, timeout=10)
        gone.request("PUT", "/chain", headers={"Fencing-Token": f"http;{fence}"})
        gone.close()
    with httpx.Client(base_url=f"http://{where}", trust_env=False) as client:
        assert client.put("/chain", auth=FencingAuth(Claim("http", 9))).status_code == 204
        chain = entries(client.get("/chain").content)
    assert chain == sorted(set(chain))
    assert chain[-1] == 9


@dataclass(frozen=True)
class Contest:
    """Services that were written to, each by all writers, and what became of it."""

    folder: Path
    outcomes: dict[str, Outcome]
    guarded: bytes = b""
    """The chain in Redis, if a service writes there."""

    def violations(self, name: str) -> list[str]:
        chain = self.guarded if name == GUARDED else (self.folder / name / "chain").read_bytes()
        return violations(self.outcomes[name], chain)


GUARDED = "guarded-2"
RIGHT = {"memory-1": "memory", "sql-2": "sql"}
"""A service of one process remembers in memory, one of two processes in a database that both see."""
WRONG = {"check-only-1": "check-only", "memory-2": "memory"}


def held(folder: Path, stores: dict[str, str]) -> dict[str, Outcome]:
    """What became of services that are named `NAME-PROCESSES`, by their stores."""
    with ExitStack() as stack:
        where = []
        for name, store in stores.items():
            (folder / name).mkdir()
            services = [
                stack.enter_context(http_service.started(folder / name, store)) for _ in range(int(name[-1]))
            ]
            where.append(f"{name}={','.join(services)}")
        return run("http", ";".join(where), folder)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Contest:
    folder = tmp_path_factory.mktemp("right")
    with Server(kinds()[0]) as server, redis.Redis.from_url(server.url) as client:
        outcomes = held(folder, RIGHT | {GUARDED: server.url})
        chain: Any = client.get("chain")
    return Contest(folder, outcomes, chain)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Contest:
    folder = tmp_path_factory.mktemp("wrong")
    return Contest(folder, held(folder, WRONG))


@pytest.mark.parametrize("name", RIGHT)
def test_accepted_writes_are_ordered_and_none_is_lost_or_torn(right: Contest, name: str) -> None:
    assert right.violations(name) == []
    assert was_a_contest(right.outcomes[name])


def test_a_service_that_writes_through_a_guard_needs_no_hold(right: Contest) -> None:
    assert right.violations(GUARDED) == []
    assert was_a_contest(right.outcomes[GUARDED])


@pytest.mark.parametrize("name", WRONG)
def test_a_store_that_does_not_hold_is_found_out(wrong: Contest, name: str) -> None:
    found = wrong.violations(name)
    assert any(one.startswith(("lost", "order", "torn")) for one in found), found
