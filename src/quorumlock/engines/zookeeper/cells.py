"""Small values, changed by whoever has seen their last version: nodes that stay, compared and set by the server.

A version is the number of the transaction that set the cell (its mzxid), so that none ever comes again. A cell
ends by the server's clock, as far as we know it; what has ended counts as absent, and is deleted by those who set
others.

A server reads little less than a MiB at once (its jute.maxbuffer). Of a larger value the rest lies in a node of its
own, written before the cell names it, and deleted when the cell does not name it any more.
"""

from __future__ import annotations

import os
import random
from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError  # type: ignore[import-untyped]

from ...core.requests import CellGet, CellSwap
from ...core.votes import GRANTED, REFUSED, Answer, Cause
from ...errors import ConfigurationError
from .looking import Looking
from .session import Talk, Wrote, wall_ms

MOST = 900_000
"""Bytes of one node."""
REST = "!"
"""Between a cell's name, where it is always escaped, and that of its rest."""
ORPHAN_MS = 3_600_000
"""A rest that no cell names after so long is nobody's."""
PRUNE_ONE_IN = 20
PRUNE_MOST = 20


class Found(NamedTuple):
    """A cell."""

    version: int
    """Which the server compares."""
    mzxid: int
    value: bytes
    over: bool
    rest: str
    """The path of its rest, or nothing."""


class Cells(Looking):
    """Everything."""

    def cell_get(self, request: CellGet) -> Talk[Answer]:
        _, path = self.paths.cell(self.paths.prefix + request.name)
        while True:
            found = yield from self._find(path)
            if found is None or found.over:
                return Answer(GRANTED, Cause.AGREED, 0)
            value = found.value
            if found.rest:
                try:
                    value += (yield self.zk.get_async(found.rest))[0]
                except NoNodeError:
                    continue  # set again meanwhile
            return Answer(GRANTED, Cause.AGREED, found.mzxid, value=value)

    def cell_swap(self, request: CellSwap) -> Talk[Answer]:
        gate, path = self.paths.cell(self.paths.prefix + request.name)
        rest = ""
        while True:
            found = yield from self._find(path)
            known = 0 if found is None or found.over else found.mzxid
            if known != request.version:
                if rest:
                    yield from self._remove(rest)
                return Answer(REFUSED, Cause.CHANGED, known)
            try:
                if len(request.value) > MOST and not rest:
                    rest = yield from self._put_rest(path, request.value[MOST:])
                sent_ms = wall_ms()
                head = b"%d %b\n" % (request.ttl_ms, rest.rpartition("/")[2].encode())
                stat = yield from self._set(path, head + request.value[:MOST], found)
            except NoNodeError:
                yield from self.make(gate, self.paths.cells)
                continue
            except (BadVersionError, NodeExistsError):
                continue  # somebody was faster; the next look says what it is now
            self.session.tick(stat.mtime, sent_ms)
            if found is not None and found.rest:
                yield from self._remove(found.rest)
            if random.randrange(PRUNE_ONE_IN) == 0:
                yield from self._prune(gate)
            return Answer(GRANTED, Cause.AGREED, int(stat.mzxid))

    def _put_rest(self, path: str, value: bytes) -> Talk[str]:
        rest = f"{path}{REST}{os.urandom(8).hex()}"
        yield Wrote(self.zk.create_async(rest, value))
        return rest

    def _set(self, path: str, data: bytes, found: Found | None) -> Talk[Any]:
        if found is not None:
            return (yield Wrote(self.zk.set_async(path, data, found.version)))
        return (yield Wrote(self.zk.create_async(path, data, include_data=True)))[1]

    def _find(self, path: str) -> Talk[Found | None]:
        try:
            data, stat = yield self.zk.get_async(path)
        except NoNodeError:
            return None
        head, mark, value = data.partition(b"\n")
        ttl, _, rest = head.partition(b" ")
        if not mark or not ttl.isdigit():
            raise ConfigurationError(f"{path} in ZooKeeper is no cell; something else has written there")
        over = stat.mtime + int(ttl) <= self.session.server_ms()
        folder = path.rpartition("/")[0]
        return Found(stat.version, int(stat.mzxid), value, over, f"{folder}/{rest.decode()}" if rest else "")

    def _prune(self, gate: str) -> Talk[None]:
        """Looks at a few of those that lie nearby."""
        children: list[str] = yield self.zk.get_children_async(gate)
        for child in random.sample(children, min(len(children), PRUNE_MOST)):
            path = f"{gate}/{child}"
            cell, is_rest, _ = path.partition(REST)
            found = yield from self._find(cell)
            if is_rest:
                stat = yield self.zk.exists_async(path)
                named = found is not None and found.rest == path
                if stat is not None and not named and stat.mtime + ORPHAN_MS < self.session.server_ms():
                    yield from self._remove(path)
            elif found is not None and found.over:
                yield from self._remove(path, found.version)

    def _remove(self, path: str, version: int = -1) -> Talk[None]:
        try:
            yield Wrote(self.zk.delete_async(path, version))
        except (BadVersionError, NoNodeError):
            pass  # set again meanwhile, or taken away by another
