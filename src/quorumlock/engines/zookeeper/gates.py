"""How anything is granted: read a gate, decide, and commit on condition that nobody was granted anything meanwhile.

Rules:

1. A grant is one transaction: the gate's version, as it was read, is checked and raised, and the holder's node is
   created. So two who read the same state are not both granted, whatever they want: alone, shared, one of several,
   all of several. Who comes too late reads again.
2. To go (release, expiry, the end of a session, a break) checks nothing: it only makes more free. Who leaves
   something else in the way (a downgrade, a release that keeps it closed) raises the version, too: another may have
   read that there is a holder, and would find it gone.
3. To queue checks nothing either: the server numbers those who come.
4. Gates are never deleted. A version that could start anew would be a version that comes twice.
5. The fence of a grant is the number of its transaction (the czxid of the holder's node): in one order for the
   whole ensemble, whatever is deleted. Who shares takes the number of the gate's last change: not below that of
   anybody who had it alone before, and below that of all who will.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import (  # type: ignore[import-untyped]
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from ...core.requests import Ticket
from ...errors import ConfigurationError
from .paths import Gate, Paths, Seen
from .session import Lease, Session, Talk, Wrote, wall_ms

FORMAT = 1
CLOSED = "ql:closed"
_MARK = b"quorumlock locks "
FORGOTTEN_MS = 60_000
"""What has been open again for so long, and was not taken by anybody, is deleted by whoever sees it."""
_OVERTAKEN = (BadVersionError, NoNodeError, NodeExistsError)


class Holding(NamedTuple):
    """Why a lock cannot be had."""

    token: str
    fence: int
    left_ms: int
    since_us: int = 0
    card: str = ""


class Gates:
    """Reading and committing, for one locker."""

    def __init__(self, session: Session, paths: Paths) -> None:
        self.session = session
        self.paths = paths

    @property
    def zk(self) -> KazooClient:
        return self.session.start()

    # Reading.

    def check(self) -> Talk[None]:
        """Is what lies below the path ours, and of this format?"""
        try:
            data, _ = yield self.zk.get_async(self.paths.locks)
        except NoNodeError:
            data = _MARK + b"%d" % FORMAT
        mark, version = data[: len(_MARK)], data[len(_MARK) :]
        if mark != _MARK or not version.isdigit():
            raise ConfigurationError(
                f"{self.paths.locks} in ZooKeeper belongs to something else; use another path in the URL"
            )
        if int(version) > FORMAT:
            raise ConfigurationError(
                f"{self.paths.locks} in ZooKeeper was made by a newer quorumlock (format {int(version)}, this one "
                f"knows {FORMAT}); upgrade, or use another path"
            )
        self.session.checked = True

    def gates(self, names: Sequence[str]) -> Talk[dict[str, Gate]]:
        """The gates of these names, each once, by path; all asked for at once."""
        asked = dict.fromkeys(map(self.paths.gate, names))
        results = [(path, self.zk.get_children_async(path, include_data=True)) for path in asked]
        found: dict[str, Gate] = {}
        for path, result in results:
            try:
                children, stat = yield result
            except NoNodeError:
                yield from self.make(path)
                # Read, and not taken for empty: somebody else may have made it, and been granted something since.
                children, stat = yield self.zk.get_children_async(path, include_data=True)
            found[path] = gate = Gate(path, stat.version, stat.mzxid, children)
            for one in gate.closed():
                if self.session.offset_known and one.until_ms + FORGOTTEN_MS < self.session.server_ms():
                    self.zk.delete_async(gate.child(one.node))  # whatever comes of it
        return found

    def gate(self, name: str) -> Talk[Gate]:
        (gate,) = (yield from self.gates([name])).values()
        return gate

    def make(self, path: str, top: str = "") -> Talk[None]:
        """Makes a gate, and what it lies in, where it is not there."""
        while True:
            try:
                yield Wrote(self.zk.create_async(path, b""))
                return
            except NodeExistsError:
                return
            except NoNodeError:
                yield from self._make_top(top or self.paths.locks)

    def _make_top(self, top: str) -> Talk[None]:
        try:
            yield Wrote(self.zk.create_async(top, _MARK + b"%d" % FORMAT if top == self.paths.locks else b""))
        except NodeExistsError:
            pass
        except NoNodeError:
            yield Wrote(self.zk.ensure_path_async(self.paths.root))
            yield from self._make_top(top)

    def holding(self, gate: Gate, seen: Seen) -> Talk[Holding | None]:
        """Who keeps others out, the one with most time first; None: nobody does any more."""
        return (yield from self.asked(seen, self.ask(gate, seen)))

    def ask(self, gate: Gate, seen: Seen) -> list[tuple[str, Any]]:
        """Nodes, and what will be answered of each: for `asked`."""
        nodes = [*seen.holders, *(reader.node for reader in seen.readers)]
        return [(node, self.zk.get_async(gate.child(node))) for node in nodes]

    def asked(self, seen: Seen, results: list[tuple[str, Any]]) -> Talk[Holding | None]:
        fences = {reader.node: reader.fence for reader in seen.readers}
        now = self.session.server_ms()
        found = [Holding(CLOSED, 0, one.until_ms - now) for one in seen.closed if one.until_ms > now]
        for node, result in results:
            try:
                data, stat = yield result
            except NoNodeError:
                continue
            told = read(data)
            # One that is overdue is nobody's to take: its maker deletes it, or the end of its session.
            left_ms = max(1, self.left_ms(told, stat))
            fence = fences.get(node, stat.czxid)
            found.append(Holding(told["token"], fence, left_ms, told["since_us"], told["card"]))
        return max(found, key=lambda one: one.left_ms, default=None)

    def left_ms(self, told: dict[str, Any], stat: Any) -> int:
        """By the server's clock, as far as we know it; a hint."""
        return min(int(told["ttl_ms"]), int(stat.mtime) + int(told["ttl_ms"]) - self.session.server_ms())

    # Committing.

    def grant(
        self, gates: Sequence[Gate], leases: Sequence[Lease], also_delete: Sequence[str] = ()
    ) -> Talk[int | None]:
        """The fence of what was granted, all of it; None: somebody else was faster."""
        session, transaction = self.session, self.zk.transaction()
        session.refuse_long(max(lease.ttl_ms for lease in leases))
        for gate in gates:
            transaction.set_data(gate.path, b"", gate.version)
        for lease in leases:
            transaction.create(lease.path, written(lease), ephemeral=True)
            session.keep(lease)  # before: what comes of it may never be told
        for path in also_delete:
            transaction.delete(path)
        sent_ms = wall_ms()
        results = yield from self.commit(transaction)
        if results is None:
            for lease in leases:
                session.drop(lease)
            return None
        stat = results[0]
        session.tick(stat.mtime, sent_ms)
        versions = {gate.path: result.version for gate, result in zip(gates, results, strict=False)}
        for lease in leases:
            lease.fence = stat.mzxid
            lease.version = versions.get(lease.path.rpartition("/")[0], -1)
        return int(stat.mzxid)

    def commit(self, transaction: Any) -> Talk[list[Any] | None]:
        """What a transaction came to; None: what it was about has changed."""
        results: list[Any] = yield Wrote(transaction.commit_async())
        for result in results:
            if isinstance(result, KazooException) and not isinstance(
                result, (RolledBackError, RuntimeInconsistency)
            ):
                if isinstance(result, _OVERTAKEN):
                    return None
                raise result
        return results

    def lease(self, name: str, token: str, node: str, ttl_ms: int, card: str) -> Lease:
        return Lease(name, token, f"{self.paths.gate(name)}/{node}", ttl_ms, card, self.session.epoch)

    # Queues.

    def enqueue(self, name: str, ticket: Ticket) -> Talk[None]:
        """Stands at the end of the queue; whoever has to know its place reads again."""
        gate, key = self.paths.gate(name), (name, ticket.member)
        with self.session.mutex:
            self.session.owed.discard(key)
        node = self.paths.waiter(name, ticket)
        path = yield Wrote(self.zk.create_async(f"{gate}/{node}", b"", ephemeral=True, sequence=True))
        with self.session.mutex:
            self.session.tickets[key] = path

    def dequeue(self, name: str, member: str) -> Talk[None]:
        """Leaves the queue. Where the answer to its coming was lost, it is looked for."""
        session, key = self.session, (name, member)
        with session.mutex:
            path = session.tickets.get(key)
        if path is None:
            gate = yield from self.gate(name)
            mine = [one for one in gate.of(name).waiters if one.member == member]
            paths = [gate.child(one.node) for one in mine]
        else:
            paths = [path]
        asked = [self.zk.delete_async(path) for path in paths]
        for result in asked:
            try:
                yield Wrote(result)
            except NoNodeError:
                pass  # it went with the grant, or with its session
        with session.mutex:
            session.tickets.pop(key, None)
            session.owed.discard(key)


def written(lease: Lease) -> bytes:
    return json.dumps([lease.token, lease.ttl_ms, lease.since_us, lease.card], separators=(",", ":")).encode()


def read(data: bytes) -> dict[str, Any]:
    """What `written` wrote; something of another hand is somebody's, and no more is known."""
    try:
        token, ttl_ms, since_us, card = json.loads(data)
        return {"token": str(token), "ttl_ms": int(ttl_ms), "since_us": int(since_us), "card": str(card)}
    except (ValueError, TypeError):
        return {"token": data.decode(errors="replace"), "ttl_ms": 1000, "since_us": 0, "card": ""}
