"""A downgrade that does not come off, driven by hand."""

from __future__ import annotations

from quorumlock.core import family
from quorumlock.core.requests import Release

from .driver import DONE, HELD, World, everyone, only


def test_one_that_fails_gives_back_the_writers_lock_with_its_ticket_and_the_readers() -> None:
    """A node that refused, or did not hear of it, would keep the ticket at the head of its queue."""
    world = World(3)
    grant = world.grant()
    grant.ticket = "room:7"
    assert world.run(family.downgrade(world.fleet, grant), [everyone(HELD), everyone(DONE), everyone(DONE)]) is None
    assert only(world.effects[1], Release) == dict.fromkeys(range(3), Release("job", grant.token, True, "room:7"))
    (reader,) = set(only(world.effects[2], Release).values())
    assert isinstance(reader, Release)
    assert reader.token.startswith("r:")
    assert reader.ticket == ""
