"""Healing, while other clients try to get in: nodes restart empty under a lease that is kept; a forced end stays.

A kept lease is given again to nodes that have forgotten it, so it lives as long as a majority has votes.
"""

from __future__ import annotations

import socket

from quorumlock import LossReason
from quorumlock.lab.servers import Server

from .stage import GENEROUS, MAX_TTL, NAME, Client, Held, Stage, has_vote, now, wait_for


def voters(stage: Stage, held: Held) -> list[int]:
    """The nodes that are out of quarantine and name the lease."""
    return [i for i, server in enumerate(stage.fleet.servers) if has_vote(server, held.lease.token)]


def rolling(stage: Stage) -> None:
    """(f) Five nodes restart empty, one after another, each as soon as the last has its vote again."""
    fleet = stage.make_fleet(5)
    held = stage.client("A").take(ttl=MAX_TTL, keep=True)
    rivals = stage.rivals(2)
    for index in stage.draw.sample(range(5), 5):
        stage.restart(fleet[index], down=stage.draw.uniform(0, 0.2))
        wait_for(lambda: not held.valid or len(voters(stage, held)) == 5, "the node has its vote again")
        stage.pause(0, 0.1)
    come_to_an_end(stage, held, rivals)


def rolling_faster(stage: Stage) -> None:
    """(g) A node restarts as soon as four have votes: two are without one most of the time."""
    fleet = stage.make_fleet(5)
    held = stage.client("A").take(ttl=MAX_TTL, keep=True)
    rivals = stage.rivals(2)
    wait_for(lambda: len(voters(stage, held)) == 5, "all nodes have the lock")
    at_a_time = 0
    for _ in range(8):
        wait_for(lambda: not held.valid or len(voters(stage, held)) >= 4, "four nodes have votes")
        if not held.valid:
            break
        alive = voters(stage, held)
        at_a_time = max(at_a_time, 6 - len(alive))
        stage.restart(fleet[stage.draw.choice(alive)], down=stage.draw.uniform(0, 0.1))
    wait_for(lambda: not held.valid or len(voters(stage, held)) == 5, "all nodes have votes again")
    if held.valid:
        stage.premise(at_a_time == 2, "restarts were not faster than quarantine")
    come_to_an_end(stage, held, rivals)


def come_to_an_end(stage: Stage, held: Held, rivals: list[Client]) -> None:
    """The lease was never lost; when it is released somebody else gets in."""
    stage.expect_kept(held)
    stage.expect(all(rival.refused for rival in rivals), "a rival was never refused: it was no rival")
    held.release()
    wait_for(lambda: len(stage.book) > 1, "a rival gets in")


def forced_open(stage: Stage) -> None:
    """(h) A break, or a plain DEL, on a majority of nodes or on all is never undone by the keeper."""
    count = stage.draw.choice([3, 5])
    reached = stage.draw.sample(range(count), stage.draw.choice([count // 2 + 1, count]))
    fleet = stage.make_fleet(count)
    a, admin = stage.client("A"), stage.client("admin", reached)
    admin.meet()
    held = a.take(ttl=MAX_TTL, keep=True)
    wait_for(lambda: len(voters(stage, held)) == count, "all nodes have the lock")
    ears = {index: stage.enter(Ear(fleet[index])) for index in reached}
    if contended := stage.draw.random() < 0.35:
        stage.rivals(2)
    wait_for_renewal(stage, a)
    forced_at = now()
    if stage.draw.random() < 0.35:
        admin.locks.break_(NAME)
    else:
        for index in reached:
            fleet[index].command("DEL", NAME)
    # A renewal that comes between the first node and the last rightly heals the first.
    stage.premise(now() < held.valid_until - MAX_TTL + 0.18, "a renewal may have come between")
    held.forced(forced_at)
    wait_for(lambda: held.reason or now() > forced_at + 3 * MAX_TTL, "the holder is told")
    told = (LossReason.BROKEN, LossReason.TAKEN) if contended else (LossReason.BROKEN,)
    stage.expect(held.reason in told, f"the holder was told {held.reason}")
    if not contended:
        stage.client("B").take(ttl=MAX_TTL).release()
    wait_for(lambda: len(stage.book) > 1, "a rival gets in")
    stage.pause(0.1, 0.4)
    back = [index for index, ear in ears.items() if ear.heard_of(held.lease.token)]
    stage.expect(not back, f"the lock came back on {back}")


class Ear:
    """Hears every command that a server executes: what was there for a moment only is found, too."""

    def __init__(self, server: Server) -> None:
        self._line = socket.create_connection(("127.0.0.1", server.port), timeout=GENEROUS)
        self._line.sendall(b"MONITOR\r\n")
        assert self._line.recv(5) == b"+OK\r\n"

    def heard_of(self, token: str) -> bool:
        """Was the lock set to that token after it was deleted?"""
        self._line.sendall(b"PING\r\n")  # its line is the last
        heard = b""
        while b'"PING"' not in heard and b"+PONG" not in heard:
            heard += self._line.recv(2**20)
        _, deleted, after = heard.lower().partition(f'"del" "{NAME}"'.encode())
        assert deleted, "the deletion itself was to be heard"
        return f'"set" "{NAME}" "{token}"'.lower().encode() in after

    def __enter__(self) -> Ear:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()


def wait_for_renewal(stage: Stage, client: Client) -> None:
    """Until just behind one: the next is a quarter of the ttl away."""
    before = client.extended_at
    wait_for(lambda: client.extended_at > before, f"a renewal within {GENEROUS:g} s")
