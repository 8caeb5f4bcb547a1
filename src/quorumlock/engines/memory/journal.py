"""What scripts write down, if they are told to (`journal.lua`). Where they differ, the script is right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .keys import Keys, Reply

Row = tuple[bytes, ...]


class Journal(Keys):
    """One node's journal: a stream, and beside it who was granted a lock and has not given it back."""

    _stream: tuple[int, int, bytes] | None = None
    """How many entries, for how many ms, where; None: nothing is written down."""

    @contextmanager
    def _noting(self, told: bytes) -> Iterator[None]:
        """What a script does meanwhile is written down."""
        cap, ttl_ms, key = told.split(b" ", 2)
        self._stream = int(cap), int(ttl_ms), key
        try:
            yield
        finally:
            self._stream = None

    def _note(self, what: bytes, lock: bytes, fence: int, by: bytes, detail: bytes) -> None:
        if self._stream is None:
            return
        cap, ttl_ms, key = self._stream
        rows = self._rows(key)
        ms, sequence = (int(part) for part in rows[-1][0].split(b"-")) if rows else (0, 0)
        now_ms = self._now_us() // 1000
        number = b"%d-0" % now_ms if now_ms > ms else b"%d-%d" % (ms, sequence + 1)
        name = lock[len(key) - len(b"ql:journal") :]
        rows.append((number, what, name, b"%d" % fence, by, detail))
        del rows[:-cap]
        self._set(key, rows, ttl_ms)

    def _note_expired(self, lock: bytes) -> None:
        """Whoever was granted it last has not given it back."""
        if self._stream is not None and (last := self._last(lock)):
            fence, since, by = last
            self._data.pop(self._last_key(lock), None)
            self._note(b"expired", lock, int(fence), by, since)

    def _note_grant(self, lock: bytes, fence: int, token: bytes, card: bytes) -> None:
        if self._stream is None:
            return
        self._note_expired(lock)
        last = b"%d %d %b" % (fence, self._now_us(), short(token))
        self._set(self._last_key(lock), last, self._stream[1])
        self._note(b"acquired", lock, fence, short(token), card)

    def _note_end(self, lock: bytes, token: bytes, mine: bool, wake: bytes) -> None:
        if self._stream is None or not token:
            return
        fence, since, by = self._last(lock) or (b"0", b"", b"")
        if by == short(token):
            self._data.pop(self._last_key(lock), None)
            if not mine:
                self._note(b"expired", lock, int(fence), by, since)
        else:
            fence, since = b"0", b""
        if mine:
            self._note(b"released", lock, int(fence), short(token), since + b" " + wake)

    def _note_broken(self, lock: bytes, fence: int, by: bytes, holder: bytes) -> None:
        if self._stream is not None:
            self._data.pop(self._last_key(lock), None)
            self._note(b"broken", lock, fence, short(by), b"" if holder == b"ql:readers" else short(holder))

    def _refused(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        fence, by, detail = argv
        self._note(b"refused", keys[0], int(fence), short(by), detail)
        return [1, 1]

    def _past(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        after, count = argv[0], int(argv[1])
        rows = self._rows(keys[0])
        found = [row for row in rows if _order(row[0]) > _order(after)][:count] if after else rows[-count:]
        words = [word for row in found for word in row]
        return [self._now_us(), rows[0][0] if rows else b"", words]

    def _rows(self, key: bytes) -> list[Row]:
        value = self._get(key)
        return value if isinstance(value, list) else []

    def _last_key(self, lock: bytes) -> bytes:
        assert self._stream is not None
        return self._stream[2].removesuffix(b"journal") + b"last:{" + lock + b"}"

    def _last(self, lock: bytes) -> tuple[bytes, bytes, bytes] | None:
        found = re.fullmatch(rb"(\d+) (\d+) (.*)", self._text(self._last_key(lock)) or b"", re.DOTALL)
        return (found[1], found[2], found[3]) if found else None


def short(token: bytes) -> bytes:
    """Enough of a token to tell two apart, and who it is."""
    return token[:14] + token[token.find(b"@") :] if b"@" in token else token[:14]


def _order(number: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in number.split(b"-"))
