"""(d) A replica is promoted in place, before the lock came to it. One node with quarantine on, or one of three."""

from __future__ import annotations

from quorumlock.lab.servers import Server
from tests.live.tools import get
from tests.support.proxy import Proxy

from .stage import MAX_TTL, NAME, Client, Held, Stage, now, wait_for

AT_ONCE = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-diskless-load", "swapdb")
"""Without these a replica takes a second until it is in step: longer than the lease lives."""


class Pair:
    """A primary and its replica, to which replication can be cut. Both reach the clients at one address.

    It is the only node of the fleet, or the only one that A and B both see.
    """

    def __init__(self, stage: Stage, nodes: int = 1) -> None:
        self.stage = stage
        self.nodes = nodes
        self.primary = stage.start_servers(nodes, *AT_ONCE)[nodes // 2]
        self.replica = stage.enter(Server(stage.kind, arguments=AT_ONCE))
        self.link = stage.enter(Proxy(self.primary))
        self.address = stage.enter(Proxy(self.primary))
        self.replica.command("REPLICAOF", "127.0.0.1", str(self.link.port))
        wait_for(lambda: in_step(self.replica), "the replica in step")
        stage.found()  # not before: a primary that gets its first replica takes another replication id
        wait_for(lambda: get(self.replica, "ql:node"), "the marker on the replica")

    def a(self) -> Client:
        half = self.nodes // 2
        return self.stage.client("A", range(half + 1), {half: self.address.url})

    def b(self) -> Client:
        half = self.nodes // 2
        return self.stage.client("B", range(half, self.nodes), {half: self.address.url})

    def lock_unreplicated(self) -> Held:
        """The lock is written, and the replica does not hear of it."""
        a = self.a()
        a.meet()
        self.link.go_silent()
        self.link.refusing = True
        held = a.take(ttl=self.stage.draw.uniform(0.8, MAX_TTL))
        assert get(self.replica, NAME) is None
        return held

    def fail_over(self) -> float:
        """The replica answers at the address from now on; when that was."""
        self.stage.pause(0, 0.1)
        if self.stage.draw.random() < 0.5:
            self.primary.kill()
        self.address.refusing = True
        self.address.cut()
        gone_at = now()
        self.replica.command("REPLICAOF", "NO", "ONE")
        self.address.target = self.replica
        self.stage.pause(0, 0.05)
        self.address.refusing = False
        return gone_at

    def go_and_come_back(self) -> float:
        """The replica is promoted, the primary follows it, and then is promoted again: the same process, but
        what it knew is gone."""
        self.replica.command("REPLICAOF", "NO", "ONE")
        gone_at = now()
        self.primary.command("REPLICAOF", "127.0.0.1", str(self.replica.port))
        wait_for(lambda: in_step(self.primary), "the primary in step with its replica")
        self.stage.premise(get(self.primary, NAME) is None, "somebody was there already")
        self.primary.command("REPLICAOF", "NO", "ONE")
        return gone_at


def promoted(stage: Stage) -> None:
    """The replica answers at the primary's address."""
    pair = Pair(stage)
    b = pair.b()
    if stage.draw.random() < 0.5:
        b.meet()
    held = pair.lock_unreplicated()
    gone_at = pair.fail_over()
    stage.premise(held.valid, "the lease was over before the replica was promoted")
    second = b.take(ttl=stage.draw.uniform(0.5, MAX_TTL))
    stage.expect_closed(gone_at, second)
    second.release()


def promoted_again(stage: Stage, idle: bool = False) -> None:
    """The primary is demoted and promoted again, and B comes: over a new connection, or one that stood idle all
    the while, so that nothing has told B."""
    pair = Pair(stage, stage.draw.choice([1, 1, 3]))
    b = pair.b()
    if idle:
        b.meet()
    held = pair.lock_unreplicated()
    gone_at = pair.go_and_come_back()
    stage.premise(held.valid, "the lease was over before the primary was back")
    second = b.take(ttl=stage.draw.uniform(0.5, MAX_TTL))
    stage.expect_closed(gone_at, second)
    second.release()


def promoted_in_place(stage: Stage) -> None:
    """(d) One or the other."""
    stage.draw.choice([promoted, promoted, promoted_again])(stage)


def promoted_unseen(stage: Stage) -> None:
    """(d) Demoted and promoted again between two requests of a client that stays connected."""
    promoted_again(stage, idle=True)


def in_step(server: Server) -> bool:
    return b"master_link_status:up" in server.command("INFO", "replication")
