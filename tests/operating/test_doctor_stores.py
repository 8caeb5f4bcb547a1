"""Findings about stores on servers. What no test machine has (a slow network, a clock that is wrong) is judged on
facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from quorumlock.core.states import READY, NodeState
from quorumlock.doctoring import stores
from quorumlock.doctoring.stores import StoreFacts
from tests.support.servers.databases import Database, MariaDB, PostgreSQL, needed

from .examining import examined, only, troubles

WELL = StoreFacts(
    (NodeState("postgresql:h:1/d", READY, "", None, "postgresql", "15.1", 0.001, 0.1, 0.0),),
    node_timeout=0.05,
    cautions=(),
)


@pytest.fixture(scope="module", params=[PostgreSQL, MariaDB])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    needed(request.param)
    with request.param() as server:
        yield server


def url_of(database: Database) -> str:
    return database.url.replace("/test?", "/mysql?")


@pytest.mark.real_time
def test_a_server_that_does_not_wait_for_its_disk(database: Database) -> None:
    found = {one["check"]: one["severity"] for one in examined(url_of(database))}
    assert found == {"store": "ok", "latency": "ok", "clock": "ok", "set-up": "warning"}
    says = " ".join(says for _, _, says in troubles(url_of(database), "set-up"))
    assert ("fsync = off" in says) == isinstance(database, PostgreSQL)
    assert ("innodb_flush_log_at_trx_commit" in says) == isinstance(database, MariaDB)


@pytest.mark.parametrize("url", ["postgresql://nobody:secret@127.0.0.1:1/d", "mysql://nobody:secret@127.0.0.1:1/d"])
def test_a_server_that_is_not_there(url: str) -> None:
    severity, node, says = only(troubles(url, "store"))
    assert severity == "error"
    assert node is not None
    assert node.endswith(":127.0.0.1:1/d")
    assert "refused" in says
    assert "secret" not in says


def test_a_slow_one_and_one_with_another_clock() -> None:
    assert [list(check.judge(WELL)) for check in stores.CHECKS] == [[]] * 4
    slow = dataclasses.replace(WELL, states=(dataclasses.replace(WELL.states[0], latency=0.2),))
    assert "200 ms" in next(stores.quick(slow)).says
    behind = dataclasses.replace(WELL, states=(dataclasses.replace(WELL.states[0], clock_offset=-30.0),))
    assert "30.0 s behind" in next(stores.clocks(behind)).says
