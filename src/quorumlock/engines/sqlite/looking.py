"""Looking at the locks of a file without touching them: who holds one, and which are held."""

from __future__ import annotations

from ...core.requests import Inspect, InspectMany, Scan
from ...core.votes import GRANTED, Answer, Cause, Sight
from .boot import now_ms
from .family import Family
from .readers import READERS

WAITERS_MOST = 1000
START = 8
"""Characters of a token."""

_CARD = "SELECT since_us, card FROM leases WHERE name = ?"
_HELD = f"""SELECT substr(name, length(:prefix) + 1) FROM leases AS l
    WHERE begins = length(:prefix) AND substr(name, 1, length(:prefix)) = :prefix
    AND substr(name, length(:prefix) + 1) GLOB :pattern
    AND CASE WHEN token = '{READERS}' THEN EXISTS (SELECT 1 FROM readers AS r LEFT JOIN reader_sightings AS s
            ON s.name = r.name AND s.token = r.token AND s.boot = :boot AND s.expires_ms = r.expires_ms
            WHERE r.name = l.name
            AND CASE WHEN r.boot = :boot THEN r.expires_ms > :now ELSE ifnull(s.until_ms > :now, 1) END)
        WHEN boot = :boot THEN expires_ms > :now
        ELSE NOT EXISTS (SELECT 1 FROM sightings AS s WHERE s.name = l.name AND s.boot = :boot
            AND s.token = l.token AND s.expires_ms = l.expires_ms AND s.until_ms <= :now) END
    ORDER BY name"""


class Looking(Family):
    """Everything that a file answers about locks."""

    def inspect(self, request: Inspect) -> Answer:
        self._cursor.execute("BEGIN")  # so that all of it is seen at one instant
        sight = self._sight(self._prefix + request.name)
        self._cursor.execute("COMMIT")
        return Answer(GRANTED, Cause.AGREED, sight=sight)

    def inspect_many(self, request: InspectMany) -> Answer:
        self._cursor.execute("BEGIN")
        sights = [self._sight(self._prefix + name) for name in request.names]
        self._cursor.execute("COMMIT")
        parts = tuple(Answer(GRANTED, Cause.AGREED, sight=sight) for sight in sights)
        return Answer(GRANTED, Cause.AGREED, parts=parts)

    def _sight(self, name: str) -> Sight:
        """Within a transaction."""
        row = self._find(name)
        left_ms = 0 if row is None else self._left_ms(name, row)
        waiters = self._tickets.members(name, WAITERS_MOST)
        if row is None or left_ms == 0:
            return Sight("", 0, self._fences.last(), 0, "", "", (), waiters)
        if row.token == READERS:
            readers = self._readers.each(name)
            left_ms = max((left for _, left in readers), default=0)
            return Sight(READERS, left_ms, row.fence, 0, "", "", readers, waiters)
        self._cursor.execute(_CARD, (name,))
        ((since_us, card),) = self._cursor.fetchall()
        left_ms = left_ms or self._wait_ms(row)
        start = row.token[:START] if since_us else ""  # of some other hand nothing is known
        return Sight(row.token, left_ms, row.fence, since_us, start, card, (), waiters)

    def scan(self, request: Scan) -> Answer:
        """All in one step: a file has no millions of locks that are held, and rows of others are few."""
        pattern = request.pattern.replace("[", "[[]")  # to SQLite that would begin a set of characters
        known = {"prefix": self._prefix, "pattern": pattern, "boot": self._clock, "now": now_ms()}
        self._cursor.execute(_HELD, known)
        return Answer(GRANTED, Cause.AGREED, names=("0", *(name for (name,) in self._cursor.fetchall())))
