"""Fifty processes write to one Redis: in order, nothing lost or torn; and a guard with a fault is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from quorumlock.lab.servers import Server, Servers, kinds

from .writers import SEEDS, Outcome, run, violations, was_a_contest

pytestmark = [pytest.mark.live, pytest.mark.real_time(1)]


def judged(form: str, url: str, folder: Path, seed: int = 1) -> tuple[dict[str, Outcome], dict[str, list[str]]]:
    outcomes = run(form, url, folder, seed=seed)
    with redis.Redis.from_url(url) as store:
        fields: Any = store.hgetall("hash")
        order: Any = store.lrange("list", 0, -1)
        left: dict[str, Any] = {
            "set": store.get("chain"),
            "hset": fields[b"one"] if len(set(fields.values())) == 1 else b"torn",
            "call": map(int, order),
        }
    return outcomes, {name: violations(outcomes[name], accepted) for name, accepted in left.items()}


def test_accepted_writes_are_ordered_and_none_is_lost_or_torn(servers: Servers, tmp_path: Path) -> None:
    outcomes, found = judged("redis", servers[0].url, tmp_path)
    assert found == {"set": [], "hset": [], "call": []}
    assert all(was_a_contest(outcome) for outcome in outcomes.values())


def test_check_and_write_in_two_round_trips_are_found_out(tmp_path: Path) -> None:
    caught: set[str] = set()
    for seed in SEEDS:
        with Server(kinds()[0]) as server:
            _, found = judged("redis-two-trips", server.url, tmp_path, seed)
        caught |= {name for name, faults in found.items() if faults}
        if caught == {"set", "hset", "call"}:
            return
    raise AssertionError(f"found out: {caught}")
