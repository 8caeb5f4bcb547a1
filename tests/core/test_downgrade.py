"""A downgrade that does not come off, driven by hand."""

from __future__ import annotations

import pytest

from quorumlock import LossReason
from quorumlock.core import family
from quorumlock.core.requests import Release
from quorumlock.core.votes import Cause

from .driver import DONE, World, everyone, granted, only, refused, votes

CHANGED = refused(Cause.CHANGED)


def test_one_that_fails_gives_back_the_writers_lock_with_its_ticket_and_the_readers() -> None:
    """A node that refused, or did not hear of it, would keep the ticket at the head of its queue."""
    world = World(3)
    grant = world.grant()
    grant.ticket = "room:7"
    world.run(family.downgrade(world.fleet, grant), [everyone(CHANGED), everyone(DONE), everyone(DONE)])
    assert only(world.effects[1], Release) == dict.fromkeys(range(3), Release("job", grant.token, True, "room:7"))
    (reader,) = set(only(world.effects[2], Release).values())
    assert isinstance(reader, Release)
    assert reader.token.startswith("r:")
    assert reader.ticket == ""


@pytest.mark.parametrize(
    ("answers", "took", "why"),
    [
        ((CHANGED, CHANGED, CHANGED), 0.01, LossReason.TAKEN),
        ((granted(), CHANGED, CHANGED), 0.01, LossReason.TAKEN),
        ((CHANGED, None, None), 0.05, LossReason.UNREACHABLE),
        ((granted(), CHANGED, None), 0.05, LossReason.UNREACHABLE),
        ((granted(), granted(), granted()), 6.0, LossReason.EXPIRED),
        ((CHANGED, CHANGED, CHANGED), 6.0, LossReason.EXPIRED),
    ],
)
def test_it_says_why(answers: tuple[object, ...], took: float, why: LossReason) -> None:
    """By our clock first: what nobody has any more may have expired."""
    world = World(3)
    asking = world.takes(took, votes(*answers))  # type: ignore[arg-type]
    steps = family.downgrade(world.fleet, world.grant(left=5.0))
    assert world.run(steps, [asking, everyone(DONE), everyone(DONE)]) is why
