"""Looking at locks without touching them: who holds one, and which are held."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from kazoo.exceptions import NoNodeError  # type: ignore[import-untyped]

from ...core.requests import Inspect, InspectMany, Past, Refused, Scan
from ...core.votes import GRANTED, Answer, Cause, Sight
from ...errors import Unsupported
from ..base import no_past
from .family import Family
from .gates import read
from .paths import Gate
from .session import Talk

READERS = "ql:readers"
WAITERS_MOST = 1000
START = 8
"""Characters of a token."""
GATES_AT_ONCE = 128
NO_JOURNAL = (
    "zookeeper:// keeps no journal of what happened to locks; subscribe to the events of a Locker instead "
    "(locks.subscribe), or have ZooKeeper write its audit log"
)


class Looking(Family):
    """Everything that is answered about locks."""

    def inspect(self, request: Inspect) -> Talk[Answer]:
        name = self.paths.prefix + request.name
        gate = yield from self.gate(name)
        return Answer(GRANTED, Cause.AGREED, sight=(yield from self._sight(gate, name)))

    def inspect_many(self, request: InspectMany) -> Talk[Answer]:
        names = self._all(request.names)
        gates = yield from self.gates(names)
        parts = []
        for name in names:
            sight = yield from self._sight(gates[self.paths.gate(name)], name)
            parts.append(Answer(GRANTED, Cause.AGREED, sight=sight))
        return Answer(GRANTED, Cause.AGREED, parts=tuple(parts))

    def _sight(self, gate: Gate, name: str) -> Talk[Sight]:
        seen = gate.of(name)
        waiters = tuple(waiter.member for waiter in seen.waiters[:WAITERS_MOST])
        yield from self._set_clock(gate, seen)
        if seen.readers and not seen.holders:
            asked = [self.zk.get_async(gate.child(reader.node)) for reader in seen.readers]
            readers = []
            for result in asked:
                try:
                    data, stat = yield result
                except NoNodeError:
                    continue
                told = read(data)
                readers.append((told["token"], max(1, self.left_ms(told, stat))))
            if readers:
                readers.sort(key=lambda one: (one[1], one[0]))
                fence = seen.readers[0].fence
                return Sight(READERS, readers[-1][1], fence, 0, "", "", tuple(readers), waiters)
        holding = yield from self.holding(gate, seen._replace(readers=()))
        if holding is None:
            return Sight("", 0, gate.fence, 0, "", "", (), waiters)
        start = holding.token[:START] if holding.since_us else ""  # of some other hand nothing is known
        return Sight(
            holding.token, holding.left_ms, holding.fence, holding.since_us, start, holding.card, (), waiters
        )

    def scan(self, request: Scan) -> Talk[Answer]:
        """Some gates in each step; the cursor is the last of them."""
        try:
            found: list[str] = yield self.zk.get_children_async(self.paths.locks)
        except NoNodeError:
            found = []
        after = "" if request.cursor == "0" else request.cursor
        numbers = sorted(number for number in found if number > after)
        some = numbers[:GATES_AT_ONCE]
        asked = [self.zk.get_children_async(f"{self.paths.locks}/{number}") for number in some]
        matches = _matching(request.pattern)
        names: dict[str, None] = {}
        for result in asked:
            try:
                children = yield result
            except NoNodeError:
                continue  # an operator took it away
            for child in children:
                name = self.paths.held(child)
                if name is not None and matches(name):
                    names[name] = None
        return Answer(GRANTED, Cause.AGREED, names=("0" if some == numbers else some[-1], *sorted(names)))

    def past(self, request: Past) -> Talk[Answer]:
        return no_past()
        yield

    def refused(self, request: Refused) -> Talk[Answer]:
        raise Unsupported(NO_JOURNAL)
        yield


def _matching(pattern: str) -> Callable[[str], object]:
    """* and ? stand for anything; a bracket is one."""
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")), re.DOTALL).match
