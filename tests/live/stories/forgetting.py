"""Nodes that lose memory inside a lease: restarted empty, with a torn AOF, or all of them together.

A sees a majority of nodes, B another; the one node that both see is the one that forgets. Without quarantine it
votes for both.
"""

from __future__ import annotations

from pathlib import Path

from quorumlock.lab.servers import Server
from tests.live.tools import get

from .stage import MAX_TTL, NAME, Client, Held, Stage, now, wait_for

AOF = ("--appendonly", "yes", "--appendfsync", "everysec")


def two_majorities(stage: Stage, *arguments: str) -> tuple[Server, Client, Client]:
    """Three or five nodes: the one that both see, and A and B, who share no other."""
    half = stage.draw.choice([1, 1, 2])
    fleet = stage.make_fleet(2 * half + 1, *arguments)
    a = stage.client("A", range(half + 1))
    b = stage.client("B", range(half, 2 * half + 1))
    if stage.draw.random() < 0.5:
        b.meet()
    return fleet[half], a, b


def rival_comes(stage: Stage, held: Held, b: Client, gone_at: float) -> None:
    """The node is back without the lock, and A still counts on it. B tries until it is let in."""
    stage.premise(held.valid, "the lease was over before the node was back")
    if stage.draw.random() < 0.25:
        stage.meanwhile(held.extend)  # A may learn of it, or go on asking until its time is up
    second = b.take(ttl=stage.draw.uniform(0.5, MAX_TTL))
    stage.expect_closed(gone_at, second)
    second.release()


def restarted_empty(stage: Stage) -> None:
    """(a) The node is killed, and comes back empty."""
    forgetful, a, b = two_majorities(stage)
    held = a.take(ttl=stage.draw.uniform(0.6, MAX_TTL))
    stage.pause(0, 0.2)
    if stage.draw.random() < 0.3:
        held.extend()
    gone_at = stage.restart(forgetful, down=stage.draw.uniform(0, 0.1))
    stage.premise(get(forgetful, NAME) is None, "B was there already")
    rival_comes(stage, held, b, gone_at)


def torn_aof(stage: Stage) -> None:
    """(b) The node is killed, and comes back with its marker, but without the end of its AOF."""
    forgetful, a, b = two_majorities(stage, *AOF)
    held = a.take(ttl=stage.draw.uniform(0.7, MAX_TTL))
    log = aof_of(forgetful)
    token = held.lease.token.encode()
    wait_for(lambda: token in log.read_bytes(), "the lock in the AOF")
    marker = get(forgetful, "ql:node")
    stage.pause(0, 0.15)
    forgetful.kill()
    gone_at = now()
    written = log.read_bytes()
    first = written.index(token)
    begin = written.rindex(b"*1\r\n$5\r\nMULTI\r\n", 0, first)
    # Within the transaction that set the lock, or just before it: half a transaction is dropped by the server.
    log.write_bytes(written[: stage.draw.randint(begin, first)])
    forgetful.start()
    if not stage.quarantine or get(forgetful, "ql:node") == marker:  # else somebody has joined it already
        stage.premise(get(forgetful, NAME) is None, "B was there already")
    assert get(forgetful, "ql:node") is not None, "the marker was to survive"
    rival_comes(stage, held, b, gone_at)


def all_restarted(stage: Stage) -> None:
    """(e) All nodes restart together: nobody for a max_ttl, then all is well by itself."""
    fleet = stage.make_fleet(stage.draw.choice([3, 5]))
    a, b = stage.client("A"), stage.client("B")
    for client in (a, b):
        if stage.draw.random() < 0.5:
            client.meet()
    kept = stage.draw.random() < 0.25
    held = a.take(ttl=stage.draw.uniform(0.8, MAX_TTL), keep=kept)
    stage.pause(0, 0.1)
    servers = stage.draw.sample(fleet.servers, len(fleet))
    for server in servers:
        server.kill()
    gone_at = now()
    for server in servers:
        server.start(wait=False)
    if not kept and stage.draw.random() < 0.25:
        stage.meanwhile(held.extend)
    second = b.take(ttl=stage.draw.uniform(0.5, MAX_TTL))  # as soon as a majority is there, were it let in
    stage.expect_closed(gone_at, second)
    stage.expect_told(b)
    second.release()
    for server in servers:
        server.wait_until_ready()
    a.take(ttl=MAX_TTL).release()


def aof_of(server: Server) -> Path:
    """The file that the server appends to."""
    (found,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    return found
