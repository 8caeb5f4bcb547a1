"""(c) A node comes back with an old disk, on which stands a lease that was released or broken since."""

from __future__ import annotations

import shutil

from quorumlock.lab.servers import Server
from tests.live.tools import get

from .forgetting import AOF, aof_of
from .stage import MAX_TTL, NAME, Held, Stage, now, wait_for


class Disk:
    """A copy of what a server has on disk while a lease is held."""

    def __init__(self, stage: Stage, server: Server, held: Held, aof: bool) -> None:
        self.stage = stage
        self.server = server
        self.kept = server.folder.with_name(server.folder.name + "-old")
        stage.at_end(lambda: shutil.rmtree(self.kept, ignore_errors=True))
        token = held.lease.token.encode()
        if aof:
            wait_for(lambda: token in aof_of(server).read_bytes(), "the lock in the AOF")
        else:
            server.command("SAVE")
        shutil.copytree(server.folder, self.kept)

    def put_back(self) -> float:
        """Kills the server and starts it from the copy; when it was gone."""
        self.server.kill()
        gone_at = now()
        shutil.rmtree(self.server.folder)
        shutil.copytree(self.kept, self.server.folder)
        self.server.start()
        return gone_at


def broken_since(stage: Stage) -> None:
    """A sees 0 and 1, the others 1 and 2. The lease was broken on 1 and 2, and B has it now. Node 1 comes back with
    A's lock: A, who knows nothing of it, extends on 0 and 1."""
    aof = stage.draw.random() < 0.5
    fleet = stage.make_fleet(3, *(AOF if aof else ()))
    a, b, admin = stage.client("A", {0, 1}), stage.client("B", {1, 2}), stage.client("admin", {1, 2})
    admin.meet()
    b.meet()
    held = a.take(ttl=MAX_TTL)
    disk = Disk(stage, fleet[1], held, aof)
    broken_at = now()
    admin.locks.break_(NAME)
    held.forced(broken_at)
    second = b.take(ttl=MAX_TTL)
    stage.pause(0, 0.1)
    disk.put_back()
    stage.premise(held.valid and second.valid, "the leases were over before the node was back")
    stage.expect(get(fleet[1], NAME) in (held.lease.token, None), "the old disk does not name A")
    stage.pause(0, 0.1)
    held.extend()
    stage.expect(stage.quarantine is False or held.reason is not None, "A's lease came back from an old disk")
    stage.client("C").take(ttl=MAX_TTL).release()


def released_since(stage: Stage) -> None:
    """A has released, and B has the lock on 1 and 2. Node 1 comes back with A's lock, which soon runs out; C sees 0
    and 1, while B's lease is valid."""
    aof = stage.draw.random() < 0.5
    fleet = stage.make_fleet(3, *(AOF if aof else ()))
    a, b, c = stage.client("A"), stage.client("B", {1, 2}), stage.client("C", {0, 1})
    b.meet()
    if stage.draw.random() < 0.5:
        c.meet()
    held = a.take(ttl=stage.draw.uniform(0.3, 0.6))
    disk = Disk(stage, fleet[1], held, aof)
    held.release()
    second = b.take(ttl=MAX_TTL)
    stage.pause(0, 0.1)
    gone_at = disk.put_back()
    stage.premise(second.valid, "the lease was over before the node was back")
    third = c.take(ttl=stage.draw.uniform(0.5, MAX_TTL))
    stage.expect_closed(gone_at, third)
    third.release()


def old_disk(stage: Stage) -> None:
    """(c) One or the other."""
    stage.draw.choice([broken_since, released_since])(stage)
