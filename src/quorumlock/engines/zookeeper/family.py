"""What is answered to requests for several locks: the slots of a semaphore, and locks that are set all or none.

The same gates and the same queues: what differs is which nodes are in the way.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...clocks import boot_time
from ...core.requests import AcquireAll, AcquireAny, ConfirmAll, Leave, Release, Ticket
from ...core.votes import GRANTED, Answer, Cause
from .gates import Holding
from .leases import ABSENT, AGREED, CHANGED, UNANSWERED, Leases, waits
from .paths import Gate, Line, Seen
from .session import Lease, Talk

NO_LINE = Line((), None)


class Family(Leases):
    """Several locks at once."""

    def acquire_any(self, request: AcquireAny) -> Talk[Answer]:
        names, queue = self._all(request.names), self.paths.prefix + request.line
        ticket = request.ticket
        while True:
            gates = yield from self.gates([*names, queue])
            seen = {name: self._seen(gates, name) for name in names}
            for choice, name in enumerate(names):
                gate = gates[self.paths.gate(name)]
                if (fence := (yield from self._mine(gate, seen[name], name, request.token))) is not None:
                    return Answer(GRANTED, Cause.AGREED, fence, choice=choice)
            line = self._seen(gates, queue).line(ticket)
            free, soonest = yield from self._first_free(gates, seen)
            home = gates[self.paths.gate(queue)]
            if free is not None and not (request.strict and line.ahead):
                choice = names.index(free)
                fence = yield from self._take_one(gates, seen[free], line, free, request)
                if fence is None:
                    continue
                if line.mine is not None:
                    self._not_queued(queue, line.mine.member)
                return Answer(GRANTED, Cause.AGREED, fence, choice=choice)
            if ticket is not None:
                in_way = [gates[self.paths.gate(name)].child(node) for name in names for node in seen[name].nodes]
                if not (yield from self._stand_for(queue, home, line, ticket, in_way)):
                    continue
            return waits(None if free is not None else soonest, home, len(line.ahead))

    def _take_one(
        self, gates: dict[str, Gate], seen: Seen, line: Line, name: str, request: AcquireAny
    ) -> Talk[int | None]:
        gate, home = gates[self.paths.gate(name)], gates[self.paths.gate(self.paths.prefix + request.line)]
        delete = [gate.child(one.node) for one in seen.closed]
        if line.mine is not None:
            delete.append(home.child(line.mine.node))
        node = self.paths.holder(name, request.token)
        lease = self.lease(name, request.token, node, request.ttl_ms, request.card)
        return (yield from self.grant([gate], [lease], delete))

    def _first_free(self, gates: dict[str, Gate], seen: dict[str, Seen]) -> Talk[tuple[str | None, Holding | None]]:
        """A name that nobody has; or who will be the first to give one back."""
        soonest: Holding | None = None
        free = next((name for name, one in seen.items() if not one.nodes), None)
        if free is not None:
            return free, None
        for name, one in seen.items():
            yield from self._set_clock(gates[self.paths.gate(name)], one)
        asked = {name: self.ask(gates[self.paths.gate(name)], one) for name, one in seen.items()}
        for name, results in asked.items():
            holding = yield from self.asked(seen[name], results)
            if holding is None:
                return name, None
            if soonest is None or holding.left_ms < soonest.left_ms:
                soonest = holding
        return None, soonest

    def _stand_for(self, queue: str, home: Gate, line: Line, ticket: Ticket, in_way: Sequence[str]) -> Talk[bool]:
        """As `_stand`; the first of the queue is told when any of several goes."""
        if line.mine is None or line.ahead:
            return (yield from self._stand(queue, home, line, ticket, []))
        return (yield from self.session.watch(in_way, ticket))

    def acquire_all(self, request: AcquireAll) -> Talk[Answer]:
        """A refused one waits in the queue of the first that is busy, and in no other."""
        names, ticket, token = self._all(request.names), request.ticket, request.token
        while True:
            gates = yield from self.gates(names)
            mine: dict[str, int] = {}
            busy: tuple[str, Holding] | None = None
            for name in names:
                gate, seen = gates[self.paths.gate(name)], self._seen(gates, name)
                if (fence := (yield from self._mine(gate, seen, name, token))) is not None:
                    mine[name] = fence
                elif (holding := (yield from self._barring(gate, seen, False))) is not None:
                    busy = (name, holding)
                    break
            if busy is None:
                granted = yield from self._take_all(gates, names, mine, request)
                if granted is None:
                    continue
                return Answer(GRANTED, Cause.AGREED, max(granted), fences=tuple(granted))
            name, holding = busy
            line = NO_LINE
            if ticket is not None:
                gate, seen = gates[self.paths.gate(name)], self._seen(gates, name)
                line = seen.line(ticket)
                for other in names:
                    # It may stand where it waited before: there it would keep others from a lock that is free.
                    if other != name and self._seen(gates, other).line(ticket).mine is not None:
                        yield from self.dequeue(other, ticket.member)
                if not (yield from self._stand(name, gate, line, ticket, self._in_way(seen))):
                    continue
            return waits(holding, gates[self.paths.gate(name)], len(line.ahead))

    def _take_all(
        self, gates: dict[str, Gate], names: Sequence[str], mine: dict[str, int], request: AcquireAll
    ) -> Talk[list[int] | None]:
        """All of them are given one fence: it is new for each."""
        ticket, leases, delete = request.ticket, [], []
        for name in names:
            gate, seen = gates[self.paths.gate(name)], self._seen(gates, name)
            if ticket is not None and (own := seen.line(ticket).mine) is not None:
                delete.append(gate.child(own.node))
            if name not in mine:
                node = self.paths.holder(name, request.token)
                leases.append(self.lease(name, request.token, node, request.ttl_ms, request.card))
                delete += [gate.child(one.node) for one in seen.closed]
        fence = 0
        if leases:
            needed = {self.paths.gate(lease.name) for lease in leases}
            got = yield from self.grant([gate for path, gate in gates.items() if path in needed], leases, delete)
            if got is None:
                return None
            fence = got
        if ticket is not None:
            for name in names:
                self._not_queued(name, ticket.member)
        return [mine.get(name, fence) for name in names]

    def confirm_all(self, request: ConfirmAll) -> Talk[Answer]:
        """One node always agrees with itself: there is nothing to raise."""
        names = self._all(request.names)
        gates = yield from self.gates(names)
        for name, granted, fence in zip(names, request.granted, request.fences, strict=True):
            gate = gates[self.paths.gate(name)]
            known = yield from self._mine(gate, gate.of(name), name, request.token)
            if known is None or not fence <= granted == known:
                return CHANGED
        return Answer(GRANTED, Cause.AGREED, max(request.granted), fences=request.granted)

    def release(self, request: Release) -> Talk[Answer]:
        if not request.names:
            return (yield from super().release(request))
        names, session = self._all(request.names), self.session
        queues = self._queues(request)
        leases = [session.leases.get((name, request.token)) for name in names]
        if request.ticket and request.wake:
            for queue in queues:
                if (queue, request.ticket) in session.tickets:
                    yield from self.dequeue(queue, request.ticket)
        for lease in leases:
            if lease is not None and not request.stay_ms:
                lease.ends_at = min(lease.ends_at, boot_time() + UNANSWERED)
        gone = yield from self._end_all(names, leases, request)
        for lease in leases:
            if lease is not None:
                session.drop(lease)
        if not gone:
            for name in names:
                answer = yield from self._not_mine(name)
                if answer is not ABSENT:
                    return answer
            return ABSENT
        place = 0
        if request.wake:
            gates = yield from self.gates(queues)
            for queue in queues:
                children = gates[self.paths.gate(queue)].children
                place = max(place, self._somebody_elsewhere(list(children), queue, request.locker))
        return AGREED._replace(place=place)

    def _end_all(self, names: Sequence[str], leases: Sequence[Lease | None], request: Release) -> Talk[bool]:
        """True if any was there. In one transaction where all that we know of are there."""
        known = [lease for lease in leases if lease is not None]
        paths = [lease.path for lease in known]
        whose = [lease.name for lease in known]
        if not known:  # of an attempt whose answer was lost, or of a session that is over
            paths = [f"{self.paths.gate(name)}/{self.paths.holder(name, request.token)}" for name in names]
            whose = list(names)
        if request.stay_ms:
            if (yield from self._shut(whose, request.token, paths, request.stay_ms)):
                return True
        elif known:
            transaction = self.zk.transaction()
            for path in paths:
                transaction.delete(path)
            if (yield from self.commit(transaction)) is not None:
                return True
        gone = False
        for name, path in zip(whose, paths, strict=True):
            if request.stay_ms:
                gone = (yield from self._shut([name], request.token, [path], request.stay_ms)) or gone
            else:
                gone = (yield from self._delete(path)) or gone
        return gone

    def leave(self, request: Leave) -> Talk[Answer]:
        if not request.names:
            return (yield from super().leave(request))
        yield from self._leave_all(self._queues(request), request.ticket)
        return AGREED

    def _leave_all(self, queues: Sequence[str], member: str) -> Talk[None]:
        known = [queue for queue in queues if (queue, member) in self.session.tickets]
        for queue in known or queues:
            yield from self.dequeue(queue, member)

    def _queues(self, request: Release | Leave) -> list[str]:
        return self._all([request.line] if request.line else request.names or [request.name])

    def _all(self, names: Sequence[str]) -> list[str]:
        return [self.paths.prefix + name for name in names]

    def _seen(self, gates: dict[str, Gate], name: str) -> Seen:
        return gates[self.paths.gate(name)].of(name)
