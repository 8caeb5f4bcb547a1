"""Judgements on facts alone, where no test machine can run what they are about: old versions, and small figures."""

from __future__ import annotations

import pytest

from quorumlock.core.states import READY, NodeState
from quorumlock.doctoring.facts import FleetFacts, NodeFacts
from quorumlock.doctoring.timing import stepped
from quorumlock.doctoring.versions import ADVISORIES, affected, open_bugs, parsed, repaired, versions
from quorumlock.engines.redis.node import Terms
from quorumlock.engines.redis.visiting import Trip


def on(server: str, version: str) -> FleetFacts:
    state = NodeState("a:1", READY, "", "master", server, version, 0.001, 0.0, 0.0)
    return FleetFacts((NodeFacts(state, {"role": "master"}),), Terms("solo", 1, 60.0, False, False), 0.05, 0.01)


@pytest.mark.parametrize(
    ("server", "version", "bugs"),
    [
        ("redis", "6.2.15", 3),
        ("redis", "6.2.16", 2),
        ("redis", "6.2.19", 1),
        ("redis", "6.2.20", 0),
        ("redis", "7.0.15", 3),
        ("redis", "7.2.11", 0),
        ("redis", "7.4.5", 1),
        ("redis", "8.0.3", 1),
        ("redis", "8.2.1", 1),
        ("redis", "8.2.2", 0),
        ("redis", "8.4.0", 0),
        ("valkey", "7.2.6", 3),
        ("valkey", "8.0.0", 3),
        ("valkey", "8.0.1", 2),
        ("valkey", "8.1.3", 1),
        ("valkey", "8.1.4", 0),
        ("valkey", "9.0.0", 0),
    ],
)
def test_known_bugs_by_version(server: str, version: str, bugs: int) -> None:
    assert len(open_bugs(server, parsed(version))) == bugs
    found = list(versions(on(server, version)))
    assert [one.severity for one in found] == (["warning"] if bugs else [])


@pytest.mark.parametrize("version", ["5.0.14", "6.0.16", "2.8"])
def test_versions_that_are_too_old(version: str) -> None:
    (found,) = versions(on("redis", version))
    assert found.severity == "error"
    assert "6.2" in found.says


@pytest.mark.parametrize("version", ["", "unstable", "255", "x.y"])
def test_a_version_that_says_nothing_is_not_judged(version: str) -> None:
    assert list(versions(on("redis", version))) == []
    assert list(versions(on("dragonfly", "1.2.3"))) == []


def test_what_to_upgrade_to_is_free_of_them() -> None:
    for server in ("redis", "valkey"):
        for version in ((7, 0, 15), (6, 2, 1), (7, 2, 0), (8, 0, 0)):
            if bugs := open_bugs(server, version):
                better = parsed(repaired(server, version, bugs))
                assert better > version
                assert not open_bugs(server, better)


def test_the_table_is_in_order() -> None:
    for advisory in ADVISORIES:
        for fixed in advisory.fixed.values():
            assert list(fixed) == sorted(fixed)
            assert len({one[:2] for one in fixed}) == len(fixed)
            assert not any(affected(one, fixed) for one in fixed)


def test_a_late_answer_is_no_step() -> None:
    one = Trip(took=0.001, offset=0.0, at=100.0, server_at=5000.0)
    assert stepped(one, Trip(took=0.001, offset=0.0, at=101.0, server_at=5001.0)) == 0.0
    assert stepped(one, Trip(took=0.4, offset=0.0, at=101.0, server_at=5001.39)) == 0.0, "slow, and not wrong"
    assert stepped(one, Trip(took=0.001, offset=0.0, at=101.0, server_at=5001.1)) == pytest.approx(0.1)
    assert stepped(one, Trip(took=0.001, offset=0.0, at=101.0, server_at=5000.0)) == pytest.approx(-1.0)
