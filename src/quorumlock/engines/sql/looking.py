"""Looking at the locks of a database without touching them: who holds one, and which are held."""

from __future__ import annotations

import fnmatch
import re

from ...core.requests import Inspect, InspectMany, Scan
from ...core.votes import GRANTED, Answer, Cause, Sight
from .batches import Visit, ask
from .dialect import LOCKS
from .family import Family
from .lock import READERS, Lock, Row

WAITERS_MOST = 1000
START = 8
"""Characters of a token."""
SCAN_MOST = 1000


class Looking(Family):
    """Everything that a database answers about locks."""

    def inspect(self, request: Inspect) -> Visit[Answer]:
        (row,) = yield from self._rows.read([self._prefix + request.name])
        return Answer(GRANTED, Cause.AGREED, sight=_sight(row))

    def inspect_many(self, request: InspectMany) -> Visit[Answer]:
        rows = yield from self._rows.read(self._all(request.names))
        parts = tuple(Answer(GRANTED, Cause.AGREED, sight=_sight(row)) for row in rows)
        return Answer(GRANTED, Cause.AGREED, parts=parts)

    def scan(self, request: Scan) -> Visit[Answer]:
        """The names in order, from behind the cursor on; what they look like is judged here."""
        start = self._prefix + request.cursor.removeprefix("0").removeprefix("=")
        most = max(SCAN_MOST, request.size)
        now, big = self._dialect.now, self._dialect.big
        result = yield from ask(
            f"""SELECT name FROM {LOCKS} WHERE name > ? AND begins = CAST(? AS {big}) AND until_us > {now}
                ORDER BY name LIMIT {most:d}""",
            self._dialect.key(start),
            len(self._prefix),
        )
        wanted = re.compile(fnmatch.translate(request.pattern.replace("[", "[[]")))
        names = [name.decode() if isinstance(name, bytes) else str(name) for (name,) in result.rows]
        mine = [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]
        over = len(names) < most or len(mine) < len(names)
        found = (name for name in mine if wanted.match(name))
        return Answer(GRANTED, Cause.AGREED, names=("0" if over else f"={mine[-1]}", *found))


def _sight(row: Row) -> Sight:
    lock = Lock(row)
    waiters = tuple(one.member for one in lock.queue[:WAITERS_MOST])
    if not lock.token:
        return Sight("", 0, lock.fence, 0, "", "", (), waiters)
    if lock.token == READERS:
        ends = sorted((until_us, token) for token, until_us in lock.readers.items())
        readers = tuple((token, (until_us - lock.now_us) // 1000) for until_us, token in ends)
        return Sight(READERS, lock.left_ms, lock.fence, 0, "", "", readers, waiters)
    start = lock.token[:START] if lock.since_us else ""  # of some other hand nothing is known
    return Sight(lock.token, lock.left_ms, lock.fence, lock.since_us, start, lock.card, (), waiters)
