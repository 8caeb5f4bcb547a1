"""Releases that nodes have not answered: until when they are owed, and by whom."""

from __future__ import annotations

import pytest

from quorumlock.core import family
from quorumlock.core.redlock import Grant, acquire, release_grant
from quorumlock.core.renewal import extend, renew
from quorumlock.core.votes import Cause

from .driver import (
    ABSENT,
    DONE,
    HELD,
    SILENT,
    everyone,
    granted,
    refused,
    then,
    votes,
)
from .owing import MINE, TTL, Client


@pytest.mark.parametrize(("first", "then"), [(20.0, 1.0), (1.0, 20.0)])
@pytest.mark.parametrize("heard", [True, False])
def test_it_is_sent_until_the_lock_has_expired_everywhere(first: float, then: float, heard: bool) -> None:
    """Nodes never shorten a lock, and may have executed an extension that was not answered."""
    client = Client()
    world = client.world
    grant = world.grant(ttl=first)
    grant.lock_delay = 3.0
    world.run(extend(world.fleet, grant, then), [everyone(DONE if heard else SILENT)])
    world.now += 0.5
    world.run(release_grant(world.fleet, grant), [everyone(SILENT)])
    assert 22.4 < client.owes_for() < 23.1


def test_an_extension_long_ago_does_not_count() -> None:
    client = Client()
    world = client.world
    grant = world.grant(ttl=20.0)
    world.run(extend(world.fleet, grant, 1.0), [everyone(DONE)])
    for _ in range(60):
        world.now += 0.5
        world.run(extend(world.fleet, grant, 1.0), [everyone(DONE)])
    world.run(release_grant(world.fleet, grant), [everyone(SILENT)])
    assert client.owes_for() == pytest.approx(1.0)


def test_a_lock_delay_is_part_of_it_where_an_attempt_is_undone() -> None:
    client = Client()
    client.world.run(
        acquire(client.world.fleet, "job", TTL, lock_delay=5.0),
        [votes(granted(), HELD, HELD), everyone(SILENT)],
    )
    assert client.owes_for() == pytest.approx(TTL + 5.0)


def test_and_where_another_permit_is_given_back() -> None:
    client = Client()
    first, second = (granted()._replace(choice=choice) for choice in (0, 1))
    outcome = client.world.run(
        acquire(client.world.fleet, "job", TTL, lock_delay=5.0, kind=family.AnyOf("job", 2)),
        [votes(second, first, first, order=(0, 1, 2)), votes(SILENT, DONE, DONE)],
    )
    assert isinstance(outcome, Grant)
    assert client.owes_for() == pytest.approx(TTL + 5.0)


def test_and_where_a_lock_is_shared_by_a_majority_only() -> None:
    client = Client()
    grant = client.world.grant(ttl=TTL)
    grant.lock_delay = 5.0
    answers = [votes(granted(), granted(), refused(Cause.CHANGED)), votes(SILENT, SILENT, SILENT)]
    client.world.run(family.downgrade(client.world.fleet, grant), answers)
    assert client.owes_for() == pytest.approx(TTL + 5.0)


def test_a_release_behind_a_healing_is_owed() -> None:
    client = Client()
    world = client.world
    grant = world.grant(ttl=TTL)
    grant.lock_delay = 5.0
    healing = then(everyone(DONE), lambda: setattr(grant, "over", True))
    world.run(renew(world.fleet, [grant]), [votes(ABSENT, DONE, DONE), healing, everyone(SILENT)])
    assert client.owes_for() == pytest.approx(TTL + 5.0)


def test_also_if_it_is_interrupted() -> None:
    client = Client()
    world = client.world
    grant = world.grant(ttl=TTL)
    healing = then(everyone(DONE), lambda: setattr(grant, "over", True))
    steps = renew(world.fleet, [grant])
    raised = world.interrupt(steps, [votes(ABSENT, DONE, DONE), healing], KeyboardInterrupt())
    assert isinstance(raised, KeyboardInterrupt)
    client.sleep()
    assert client.repeat(everyone(DONE)) == [{0: MINE}]
