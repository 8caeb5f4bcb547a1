"""Two who came in the same microsecond: each must not be told that it is the other's turn."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import quorumlock
from quorumlock.core import redlock
from quorumlock.core.family import Read, Write
from quorumlock.core.requests import Ticket
from quorumlock.lab.servers import Servers


def settled(locks: quorumlock.Locker, reader: str, writer: str) -> list[str]:
    """Who gets a free lock for which a reader and a writer wait, each asking in turn."""
    now = int(time.time() * 1_000_000)
    tickets = {
        "reader": (Read(), Ticket(f"{reader}~r", "", now, 60_000)),
        "writer": (Write(), Ticket(writer, "", now, 60_000)),
    }
    won = []
    with locks.lock("a", ttl=1):
        for kind, ticket in tickets.values():
            attempt = redlock.acquire(locks._fleet, "a", 1.0, kind=kind, ticket=ticket, strict=True, ears={0})
            assert not locks._run(attempt).won
    for _ in range(3):
        for who, (kind, ticket) in list(tickets.items()):
            shown = ticket._replace(again=True)
            outcome = locks._run(
                redlock.acquire(locks._fleet, "a", 1.0, kind=kind, ticket=shown, strict=True, ears={0})
            )
            if isinstance(outcome, redlock.Grant):
                won.append(who)
                done = kind.undoing("a", outcome.token)._replace(wake=True, ticket=ticket.member)
                locks._run(redlock.release(locks._fleet, "a", outcome.token, 1.0, outcome.route, request=done))
                del tickets[who]
    return won


@pytest.mark.live
@pytest.mark.parametrize(("reader", "writer"), [("1", "2"), ("2", "1")])
def test_two_who_came_at_the_same_time_both_get_it(
    servers: Servers, connect: Callable[..., quorumlock.Locker], reader: str, writer: str
) -> None:
    assert sorted(settled(connect(servers.urls[:1]), reader, writer)) == ["reader", "writer"]


@pytest.mark.parametrize(("reader", "writer"), [("1", "2"), ("2", "1")])
def test_the_same_in_memory(reader: str, writer: str) -> None:
    with quorumlock.connect(f"memory://ties-{reader}-{writer}") as locks:
        assert sorted(settled(locks, reader, writer)) == ["reader", "writer"]
