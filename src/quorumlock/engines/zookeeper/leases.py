"""What is answered to requests for one lock. (Several at once: `family.py`; looking: `looking.py`.)

Each request is a generator that talks to the server (`session.Talk`), written once for threads and for asyncio.
"""

from __future__ import annotations

import math

from kazoo.exceptions import NoNodeError  # type: ignore[import-untyped]

from ...clocks import boot_time
from ...core.requests import (
    READER,
    Acquire,
    Break,
    Close,
    Confirm,
    Downgrade,
    Extend,
    Heal,
    Initialise,
    Join,
    Kept,
    Leave,
    Look,
    Release,
    Survey,
    Ticket,
)
from ...core.votes import GRANTED, REFUSED, Answer, Cause, of_each
from ...errors import ConfigurationError
from .gates import Gates, Holding, written
from .paths import Gate, Line, Seen, digest
from .session import Lease, Talk, Wrote, wall_ms

AGREED = Answer(GRANTED, Cause.AGREED)
ABSENT = Answer(REFUSED, Cause.ABSENT)
CHANGED = Answer(REFUSED, Cause.CHANGED)

UNANSWERED = 1.0
"""Seconds after which the janitor deletes what was released, if the server has not answered.

The janitor leaves a lock alone that is to stay closed after its release, because deleting its node would open it.
The keeper repeats such a release (`core/owed.py`); if none arrives, the lease expires after its ttl.
"""
AT_ONCE = 400_000
"""Bytes in one transaction; a server reads a megabyte."""


class Leases(Gates):
    """One lock."""

    def nothing(self, _: Join | Survey | Close) -> Talk[Answer]:
        """Whoever can ask has been let in."""
        yield self.zk.exists_async(self.paths.locks)
        return AGREED

    def initialise(self, _: Initialise) -> Talk[Answer]:
        """Makes what locks lie in: from then on a client needs no right to make it."""
        yield from self.make(self.paths.gate(""))
        yield from self.make(self.paths.cell("")[0], self.paths.cells)
        return AGREED

    def acquire(self, request: Acquire) -> Talk[Answer]:
        name, token, ticket = self.paths.prefix + request.name, request.token, request.ticket
        plain = ticket is None and not request.strict and not request.shared
        if plain and (answer := (yield from self._acquire_known(name, request))) is not None:
            return answer
        while True:
            gate = yield from self.gate(name)
            seen = gate.of(name)
            if (fence := (yield from self._mine(gate, seen, name, token))) is not None:
                return Answer(GRANTED, Cause.AGREED, fence)
            line = seen.line(ticket, request.shared)
            holding = yield from self._barring(gate, seen, request.shared)
            if holding is None and not (request.strict and line.ahead):
                fence = yield from self._take(gate, seen, line, name, request)
                if fence is None:
                    continue
                return Answer(GRANTED, Cause.AGREED, fence)
            if ticket is not None and not (yield from self._stand(name, gate, line, ticket, self._in_way(seen))):
                continue
            return waits(holding, gate, len(line.ahead))

    def _acquire_known(self, name: str, request: Acquire) -> Talk[Answer | None]:
        """In one step, where nobody but us has used the gate since we gave the lock back."""
        with self.session.mutex:
            version = self.session.free.pop(name, None)
        if version is None:
            return None
        gate = Gate(self.paths.gate(name), version, 0, ())
        lease = self.lease(
            name, request.token, self.paths.holder(name, request.token), request.ttl_ms, request.card
        )
        fence = yield from self.grant([gate], [lease])
        return None if fence is None else Answer(GRANTED, Cause.AGREED, fence)

    def _take(self, gate: Gate, seen: Seen, line: Line, name: str, request: Acquire) -> Talk[int | None]:
        token, delete = request.token, [gate.child(one.node) for one in seen.closed]
        if line.mine is not None:
            delete.append(gate.child(line.mine.node))
        shared = gate.fence
        if request.shared:
            shared = seen.readers[0].fence if seen.readers else gate.fence
            node = self.paths.reader(name, token, shared)
        else:
            node = self.paths.holder(name, token)
        lease = self.lease(name, token, node, request.ttl_ms, request.card)
        fence = yield from self.grant([gate], [lease], delete)
        if fence is None:
            return None
        if line.mine is not None:
            self._not_queued(name, line.mine.member)
        if request.shared:
            lease.fence, lease.version = shared, -1
            return shared
        return fence

    def _not_queued(self, name: str, member: str) -> None:
        with self.session.mutex:
            self.session.tickets.pop((name, member), None)

    def _mine(self, gate: Gate, seen: Seen, name: str, token: str) -> Talk[int | None]:
        """The fence, if it was granted to this token, whose request comes again."""
        for reader in seen.readers:
            if reader.digest == digest(token):
                return reader.fence
        node = self.paths.holder(name, token)
        if node not in seen.holders:
            return None
        stat = yield self.zk.exists_async(gate.child(node))
        return None if stat is None else int(stat.czxid)

    def _barring(self, gate: Gate, seen: Seen, shared: bool) -> Talk[Holding | None]:
        """Who keeps us out; None: nobody does."""
        in_way = seen._replace(readers=()) if shared else seen
        if not in_way.nodes:
            return None
        yield from self._set_clock(gate, in_way)
        return (yield from self.holding(gate, in_way))

    def _set_clock(self, gate: Gate, seen: Seen) -> Talk[None]:
        """What is closed opens by the server's clock, which is told with whatever is written."""
        if seen.closed and not self.session.offset_known:
            sent_ms = wall_ms()
            stat = yield Wrote(self.zk.set_async(gate.path, b""))
            self.session.tick(stat.mtime, sent_ms)

    def _in_way(self, seen: Seen) -> list[str]:
        """Whose going the first of a queue waits for: that of one, as long as there are any."""
        return seen.nodes[:1]

    def _stand(self, name: str, gate: Gate, line: Line, ticket: Ticket, in_way: list[str]) -> Talk[bool]:
        """Waits in the queue, and is told when it is its turn; False: something has changed already."""
        if line.mine is None:
            yield from self.enqueue(name, ticket)
            return False
        nodes = [line.ahead[-1].node] if line.ahead else in_way
        return (yield from self.session.watch([gate.child(node) for node in nodes], ticket))

    def confirm(self, request: Confirm) -> Talk[Answer]:
        """One node always agrees with itself: there is nothing to raise."""
        name = self.paths.prefix + request.name
        gate = yield from self.gate(name)
        fence = yield from self._mine(gate, gate.of(name), name, request.token)
        if fence is None or not request.fence <= request.granted == fence:
            return CHANGED
        return Answer(GRANTED, Cause.AGREED, fence)

    # Renewal.

    def extend(self, request: Extend) -> Talk[Answer]:
        """All in one transaction, which only a session that is alive can make: a read might be answered by a server
        that has not heard of its end."""
        causes: dict[int, Cause] = {}
        known: list[tuple[int, Kept, Lease]] = []
        for at, kept in enumerate(request.leases):
            lease = self.session.leases.get((self.paths.prefix + kept.name, kept.token))
            if lease is not None and lease.epoch != self.session.epoch:
                causes[at] = Cause.ENDED
            elif lease is None or lease.over or lease.ends_at <= boot_time():
                causes[at] = yield from self._absent(kept)
            elif not self._carries(kept, len(request.leases)):
                causes[at] = Cause.FAILED
            else:
                known.append((at, kept, lease))
        while known:
            some = _some(known)
            missing = yield from self._renew(some)
            known = known[len(some) :]
            for at, kept, lease in some:
                if missing is not None and lease in missing:
                    causes[at] = yield from self._absent(kept)
                    self.session.drop(lease)
                elif missing is not None:
                    known.append((at, kept, lease))
                else:
                    causes[at] = self._renewed(lease, kept)
        return of_each([causes[at] for at in range(len(request.leases))])

    def _carries(self, kept: Kept, count: int) -> bool:
        """Does the session carry this ttl? A server that we were moved to may have granted less than the last."""
        try:
            self.session.refuse_long(kept.ttl_ms)
        except ConfigurationError:
            if count == 1:
                raise
            return False
        return True

    def ended(self, request: Extend) -> bool:
        """Are all of an earlier session? Then there is nobody to ask."""
        leases = [self.session.leases.get((self.paths.prefix + kept.name, kept.token)) for kept in request.leases]
        return all(lease is not None and lease.epoch != self.session.epoch for lease in leases)

    def heal(self, request: Heal) -> Talk[Answer]:
        """Here nothing is forgotten: what is absent was released, broken or is over, and stays so."""
        return (yield from self.extend(Extend(request.leases)))

    def _renew(self, some: list[tuple[int, Kept, Lease]]) -> Talk[list[Lease] | None]:
        """Those that are gone; then nothing was renewed. None: all were."""
        transaction = self.zk.transaction()
        for _, kept, lease in some:
            lease.ttl_ms = max(kept.ttl_ms, math.ceil((lease.ends_at - boot_time()) * 1000))
            transaction.set_data(lease.path, written(lease))
        sent_ms = wall_ms()
        results = yield from self.commit(transaction)
        if results is not None:
            self.session.tick(results[0].mtime, sent_ms)
            return None
        asked = [(lease, self.zk.exists_async(lease.path)) for _, _, lease in some]
        missing = []
        for lease, result in asked:
            if (yield result) is None:
                missing.append(lease)
        return missing

    def _renewed(self, lease: Lease, kept: Kept) -> Cause:
        session = self.session
        with session.mutex:
            if lease.over or session.leases.get((lease.name, lease.token)) is not lease:
                return Cause.ABSENT  # it ended while it was being renewed
            if lease.epoch != session.epoch:
                return Cause.ENDED
            lease.ends_at = max(lease.ends_at, boot_time() + kept.ttl_ms / 1000)
            return Cause.AGREED

    def _absent(self, kept: Kept) -> Talk[Cause]:
        name = self.paths.prefix + kept.name
        gate = yield from self.gate(name)
        seen = gate.of(name)
        node = self.paths.holder(name, kept.token)
        others = [one for one in seen.holders if one != node]
        if not kept.token.startswith(READER):
            others += [reader.node for reader in seen.readers]
        return Cause.HELD if others or seen.closed else Cause.ABSENT

    # The end.

    def release(self, request: Release) -> Talk[Answer]:
        name, token = self.paths.prefix + request.name, request.token
        lease = self.session.leases.get((name, token))
        if request.ticket and request.wake and (name, request.ticket) in self.session.tickets:
            yield from self.dequeue(name, request.ticket)
        path = (yield from self._path_of(name, token)) if lease is None else lease.path
        look = self.zk.get_children_async if request.wake else None
        if lease is not None and not request.stay_ms:
            lease.ends_at = min(lease.ends_at, boot_time() + UNANSWERED)  # then the janitor goes on from here
        if path is None:
            return (yield from self._not_mine(name))
        if request.stay_ms and not token.startswith(READER):
            gone = yield from self._shut([name], token, [path], request.stay_ms)
        else:
            gone = yield from self._delete(path)
        children = (yield look(self.paths.gate(name))) if look is not None and gone else ()
        if lease is not None:
            self.session.drop(lease)
        if not gone:
            return (yield from self._not_mine(name))
        if lease is not None and lease.version >= 0 and not request.stay_ms:
            self.session.is_free(name, lease.version)
        return AGREED._replace(place=self._somebody_elsewhere(children, name, request.locker))

    def _somebody_elsewhere(self, children: list[str] | tuple[str, ...], queue: str, locker: str) -> int:
        waiters = Gate("", 0, 0, children).of(queue).waiters
        return int(bool(waiters) and waiters[0].member.partition(":")[0] != locker)

    def _path_of(self, name: str, token: str) -> Talk[str | None]:
        """Where a lease is that this process does not know (any more)."""
        if not token.startswith(READER):
            return f"{self.paths.gate(name)}/{self.paths.holder(name, token)}"
        gate = yield from self.gate(name)
        readers = gate.of(name).readers
        return next((gate.child(one.node) for one in readers if one.digest == digest(token)), None)

    def _delete(self, path: str) -> Talk[bool]:
        try:
            yield Wrote(self.zk.delete_async(path))
        except NoNodeError:
            return False
        return True

    def _shut(self, names: list[str], token: str, paths: list[str], stay_ms: int) -> Talk[bool]:
        """From now on they are nobody's, and still closed. That outlives this process, if need be."""
        transaction = self.zk.transaction()
        until_ms = self.session.server_ms_at_most() + stay_ms
        for name, path in zip(names, paths, strict=True):
            transaction.delete(path)
            transaction.create(f"{self.paths.gate(name)}/{self.paths.closed(name, token, until_ms)}", b"")
            transaction.set_data(self.paths.gate(name), b"")  # who has looked at it before looks again
        return (yield from self.commit(transaction)) is not None

    def _not_mine(self, name: str) -> Talk[Answer]:
        """To whoever releases what it does not have."""
        gate = yield from self.gate(name)
        holding = yield from self.holding(gate, gate.of(name))
        return ABSENT if holding is None else held(holding)

    def downgrade(self, request: Downgrade) -> Talk[Answer]:
        """From now on the lock is shared, and nobody had it in between. Its fence stays."""
        name, session = self.paths.prefix + request.name, self.session
        lease = session.leases.get((name, request.token))
        if (known := session.leases.get((name, request.reader))) is not None:
            return Answer(GRANTED, Cause.AGREED, known.fence)
        if lease is None or lease.over or lease.ends_at <= boot_time() or not lease.fence:
            return CHANGED
        node = self.paths.reader(name, request.reader, lease.fence)
        reader = self.lease(name, request.reader, node, request.ttl_ms, lease.card)
        reader.fence, reader.since_us = lease.fence, lease.since_us
        transaction = self.zk.transaction()
        transaction.delete(lease.path)
        transaction.create(reader.path, written(reader), ephemeral=True)
        transaction.set_data(self.paths.gate(name), b"")  # who has looked at it before looks again
        session.keep(reader)
        if (yield from self.commit(transaction)) is None:
            session.drop(reader)
            return CHANGED
        session.drop(lease)
        return Answer(GRANTED, Cause.AGREED, reader.fence)

    def leave(self, request: Leave) -> Talk[Answer]:
        """The next of the queue is told by the going of this one."""
        yield from self.dequeue(self.paths.prefix + request.name, request.ticket)
        return AGREED

    def break_(self, request: Break) -> Talk[Answer]:
        """The fence is raised by the transaction itself: none that is given later can be below."""
        name = self.paths.prefix + request.name
        while True:
            gate = yield from self.gate(name)
            nodes = gate.of(name).nodes
            if not nodes:
                return ABSENT
            if request.only:
                holding = yield from self._barring(gate, gate.of(name), False)
                if holding is not None and holding.fence > request.only:
                    return CHANGED
            transaction = self.zk.transaction()
            transaction.set_data(gate.path, b"", gate.version)
            for node in nodes:
                transaction.delete(gate.child(node))
            results = yield from self.commit(transaction)
            if results is not None:
                return Answer(GRANTED, Cause.AGREED, int(results[0].mzxid))

    def look(self, request: Look) -> Talk[Answer]:
        name = self.paths.prefix + request.name
        gate = yield from self.gate(name)
        seen = gate.of(name)
        holding = yield from self._barring(gate, seen, request.shared)
        if holding is not None:
            return held(holding)
        return Answer(GRANTED, Cause.AGREED, seen.readers[0].fence if seen.readers else gate.fence)


def held(holding: Holding) -> Answer:
    return Answer(REFUSED, Cause.HELD, holding.fence, holding.left_ms)


def waits(holding: Holding | None, gate: Gate, place: int) -> Answer:
    """It is held, or free and somebody else's turn."""
    if holding is None:
        return Answer(REFUSED, Cause.HELD, gate.fence, 1000, place=place)
    return held(holding)._replace(place=place)


def _some(known: list[tuple[int, Kept, Lease]]) -> list[tuple[int, Kept, Lease]]:
    """As many as fit into one transaction."""
    size = 0
    for count, (_, _, lease) in enumerate(known):
        size += len(lease.path) + 4 * len(lease.card) + 300
        if size > AT_ONCE and count:
            return known[:count]
    return known
