"""The judge of exclusion, judged: a judge that finds nothing must be one that could."""

from __future__ import annotations

from itertools import product
from typing import cast

import pytest

from quorumlock import AsyncLease
from quorumlock.clocks import boot_time

from .exclusion import Claim, Claims, Violations, violations


class Seen:
    """A lease, as `Claims` sees it."""

    def __init__(self, fence: int, left: float = 1.0) -> None:
        self.fences = {"a": fence}
        self.left = left

    def remaining(self) -> float:
        return self.left


def entered(claims: Claims, lease: Seen, began_at: float) -> None:
    claims.enter(cast(AsyncLease, lease), began_at)


def judged(*claims: Claim) -> tuple[int, int]:
    """How many overlaps and how many disorders there are."""
    found = violations(claims)
    return len(found.overlaps), len(found.disorders)


def claim(fence: int, began_at: float, ended_at: float, *, shared: bool = False) -> Claim:
    return Claim("a", fence, began_at, ended_at, shared)


def test_claims_that_overlap_are_violations() -> None:
    claims, began_at = Claims(), boot_time()
    entered(claims, Seen(1), began_at)
    entered(claims, Seen(2), began_at)
    (told,) = claims.violations()
    assert "while" in told


def test_claims_one_after_the_other_are_none() -> None:
    claims = Claims()
    for fence in (1, 2, 3):
        lease, began_at = Seen(fence), boot_time()
        entered(claims, lease, began_at)
        entered(claims, lease, began_at)
    assert claims.violations() == []
    assert len(claims) == 3


def test_a_lease_that_is_not_valid_claims_nothing() -> None:
    claims, began_at = Claims(), boot_time()
    entered(claims, Seen(2), began_at)
    entered(claims, Seen(1, left=0.0), began_at)
    assert claims.violations() == []
    assert len(claims) == 1


def test_fences_of_claims_must_grow() -> None:
    claims = Claims()
    entered(claims, Seen(2), boot_time())
    entered(claims, Seen(2), boot_time())
    (told,) = claims.violations()
    assert "fence" in told


def test_a_lease_inside_is_looked_at_again_when_another_enters() -> None:
    claims, first, second = Claims(), cast(AsyncLease, Seen(1)), cast(AsyncLease, Seen(2))
    with claims.inside(first), claims.inside(second):
        assert len(claims.violations()) == 1


def test_a_lease_that_was_lost_before_another_entered_excludes_nobody() -> None:
    claims, first, second = Claims(), Seen(1), cast(AsyncLease, Seen(2))
    with claims.inside(cast(AsyncLease, first)):
        first.left = 0.0
        with claims.inside(second):
            pass
    assert claims.violations() == []
    assert (len(claims), claims.late) == (2, 0)


@pytest.mark.parametrize(("first", "second"), list(product([False, True], repeat=2)))
def test_only_those_who_share_may_overlap(first: bool, second: bool) -> None:
    both = [claim(1, 1.0, 9.0, shared=first), claim(2, 2.0, 3.0, shared=second)]
    assert judged(*both) == (int(not (first and second)), 0)


def test_a_long_claim_overlaps_all_that_begin_in_it() -> None:
    assert judged(claim(1, 1.0, 9.0), claim(2, 2.0, 3.0), claim(3, 4.0, 5.0)) == (2, 0)


def test_what_was_never_seen_valid_is_no_verdict() -> None:
    assert judged(claim(2, 1.0, 3.0), claim(1, 2.0, 2.0)) == (0, 0)


@pytest.mark.parametrize(
    ("fence", "shared", "disorders"),
    [(4, False, 0), (3, False, 1), (2, False, 1), (3, True, 0), (2, True, 0), (1, True, 1)],
)
def test_fences_are_above_those_before_them(fence: int, shared: bool, disorders: int) -> None:
    """A writer's is above all others; a reader's is not below the last writer's."""
    before = [claim(2, 1.0, 2.0), claim(3, 3.0, 4.0, shared=True)]
    assert judged(*before, claim(fence, 5.0, 6.0, shared=shared)) == (0, disorders)


def test_resources_do_not_exclude_one_another() -> None:
    assert violations([Claim("a", 2, 1.0, 9.0), Claim("b", 1, 2.0, 3.0)]) == Violations([], [])
