"""Fifty client processes and one real service: in order, nothing lost; a store that does not hold is found out."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from quorumlock.guards import Claim, FencingAuth
from quorumlock.lab.servers import Server, kinds

from . import http_service
from .writers import entries, run, violations, was_a_contest

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


# A service of one process remembers in memory, one of two processes in a database that both see.
RIGHT = {"memory": 1, "sql": 2}
WRONG = {"check-only": 1, "memory": 2}


@pytest.mark.parametrize(("store", "processes"), RIGHT.items())
def test_accepted_writes_are_ordered_and_none_is_lost_or_torn(
    start: Start, tmp_path: Path, store: str, processes: int
) -> None:
    outcome = run("http", ",".join(start(store) for _ in range(processes)), tmp_path)["http"]
    assert violations(outcome, (tmp_path / "chain").read_bytes()) == []
    assert was_a_contest(outcome)


def test_a_service_that_writes_through_a_guard_needs_no_hold(start: Start, tmp_path: Path) -> None:
    with Server(kinds()[0]) as server, redis.Redis.from_url(server.url) as client:
        outcome = run("http", ",".join(start(server.url) for _ in range(2)), tmp_path)["http"]
        chain: Any = client.get("chain")
    assert violations(outcome, chain) == []
    assert was_a_contest(outcome)


@pytest.mark.parametrize(("store", "processes"), WRONG.items())
def test_a_store_that_does_not_hold_is_found_out(start: Start, tmp_path: Path, store: str, processes: int) -> None:
    outcome = run("http", ",".join(start(store) for _ in range(processes)), tmp_path)["http"]
    found = violations(outcome, (tmp_path / "chain").read_bytes())
    assert any(one.startswith(("lost", "order", "torn")) for one in found), found
