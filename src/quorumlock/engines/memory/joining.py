"""The script by which nodes join a fleet, in Python. Where they differ, the script is right."""

from __future__ import annotations

import math

from .family import Family
from .keys import Reply
from .locks import digest

CLOSED = 2**53 - 1


class Joining(Family):
    """What a node says of itself, and what it remembers of its fleet."""

    run_id: str
    role: str
    mode: str
    maxmemory: int
    policy: str

    def _join(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        verb, format_, fleet, nodes, max_ttl_ms, durable, quarantine, *least_ms = argv
        now = self._now_us()
        identity = digest(self.run_id) + (b"-" + self._replication_id() if quarantine == b"1" else b"")

        def answer(status: bytes, marker: bytes | None) -> Reply:
            facts = (self.run_id, self.role, self.mode, str(self.maxmemory), self.policy)
            return [status, marker or b"", b"%d" % now, *(fact.encode() for fact in facts)]

        def write(status: bytes, ready_at: int, span_ms: int, identity: bytes = identity) -> Reply:
            words = [b"%d" % ready_at, b"%d" % span_ms, format_, fleet, nodes, max_ttl_ms, durable, quarantine]
            marker = b" ".join([*words, identity])
            self._set(keys[0], marker, None)
            return answer(status, marker)

        marker = self._text(keys[0])
        if verb == b"survey":
            return answer(b"marked" if marker else b"free", marker)
        if self.role != "master":
            return answer(b"misfit", marker)
        wait_ms = int(max_ttl_ms) if quarantine == b"1" else 0
        if verb == b"init":
            return answer(b"marked", marker) if marker else write(b"new", now, wait_ms)
        old = marker.split() if marker else []
        old = old if len(old) == 9 else [b"0", b"0", *[b""] * 3, b"0", b"", b"", b""]
        old_ready_at, old_span_ms = int(old[0]), int(old[1])
        closed, ours = old_ready_at == CLOSED, [old[3], old[4]] == [fleet, nodes]
        if verb == b"close":
            if int(old[2] or 0) > int(format_):
                return answer(b"misfit", marker)
            if closed and not ours:
                return answer(b"marked", marker)
            left_ms = math.ceil((old_ready_at - now) / 1000)
            wait_ms = max(wait_ms, int(old[5]), min(left_ms, old_span_ms))
            origin = b"from:%b:%d" % (old[3], int(old[4] or 0))
            if ours:
                origin = old[8] if closed else b"from::0"
            return write(b"closed", CLOSED, wait_ms, origin)
        if verb == b"force":
            if not closed or not ours:
                return answer(b"marked", marker)
            wait_ms = max(wait_ms, old_span_ms, *map(int, least_ms))
            return write(b"new", now + wait_ms * 1000, wait_ms)
        if not marker and verb == b"join":
            return answer(b"free", None)
        if not marker:
            return write(b"new", now + wait_ms * 1000, wait_ms)
        if [old[2], old[3], old[4], old[7]] != [format_, fleet, nodes, quarantine]:
            return answer(b"misfit", marker)
        if quarantine == b"1" and [old[5], old[6]] != [max_ttl_ms, durable]:
            return answer(b"misfit", marker)
        if closed:
            return answer(b"closed", marker)
        longer = int(max_ttl_ms) > int(old[5])
        max_ttl_ms = max_ttl_ms if longer else old[5]
        ready_at = min(old_ready_at, now + old_span_ms * 1000)
        if old[8] != identity and durable != b"1":
            return write(b"restarted", max(ready_at, now + wait_ms * 1000), max(old_span_ms, wait_ms))
        if old[8] != identity or longer or ready_at < old_ready_at:
            return write(b"known", ready_at, old_span_ms)
        return answer(b"known", marker)
