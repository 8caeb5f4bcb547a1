"""Random calls, and a model of six lines that says what each is to answer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from quorumlock import StaleFence
from quorumlock.guards import Claim
from tests.support.servers.databases import PostgreSQL

from . import sql_fixtures
from .sql_sides import SIDES, Conn, Side


class Model:
    """The marks of resources, as they are in the transaction and as they were before it."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.marks: dict[str, int] = {}

    def admits(self, claim: Claim) -> bool:
        if claim.fence < self.marks.get(claim.resource, 0):
            return False
        self.marks[claim.resource] = claim.fence
        return True

    def commit(self) -> None:
        self.kept = dict(self.marks)

    def rollback(self) -> None:
        self.marks = dict(self.kept)


def disagreement(guard: object, conn: Conn, calls: int, seed: int) -> str | None:
    """The first call that is not answered as the model says."""
    chance, model = random.Random(seed), Model()
    for number in range(calls):
        verb = chance.choice(["enter", "admit", "admit", "commit", "rollback"])
        if verb in ("commit", "rollback"):
            getattr(conn, verb)()
            getattr(model, verb)()
            continue
        claim = Claim(chance.choice(["a", "A", "b"]), chance.randrange(1, 12) + number // 20)
        before = model.marks.get(claim.resource, 0)
        try:
            conn(getattr(guard, verb), claim)
            seen = None
        except StaleFence as stale:
            seen = stale.seen
        if (None if model.admits(claim) else before) != seen:
            return f"call {number}, seed {seed}: {verb} {claim} after {before} was answered {seen}"
    conn.rollback()
    return None


@pytest.mark.parametrize("name", SIDES)
def test_every_call_is_answered_as_the_model_says(open_side: Callable[[str], Side], name: str) -> None:
    side = open_side(name)
    conn, guard = side.connect(), side.sql_guard()
    conn(guard.create)
    conn.commit()
    assert disagreement(guard, conn, 80, random.randrange(10**9)) is None


def test_the_model_disagrees_with_a_guard_that_is_wrong(open_side: Callable[[str], Side]) -> None:
    from .sql_canaries import Unordered

    conn = open_side("sqlite-driver").connect()
    conn(Unordered().create)
    assert disagreement(Unordered(), conn, 80, 1) is not None


def test_a_server_that_is_missing_is_skipped_and_never_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgreSQL, "PROGRAMS", ("no-such-program",))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no no-such-program here"):
        sql_fixtures.needed("postgresql")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.UsageError, match="CI must not skip: no no-such-program"):
        sql_fixtures.needed("postgresql")
