"""The scripts about locks, each under its own name. Where they differ, the script is right."""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Iterator

from .journal import Journal
from .keys import Reply

STRANGER, QUARANTINE, ABSENT, OTHER_KIND, CHANGED = -1, -2, -3, -4, -5
READERS = b"ql:readers"


class Locks(Journal):
    """What the scripts do to a node's memory."""

    replication_id: str

    def _replication_id(self) -> bytes:
        return digest(self.replication_id)

    def _not_standing(self, marker: bytes | None, expected: bytes) -> list[int] | None:
        if marker is None or marker != expected:
            return [STRANGER]
        ready_at, span_ms = (int(word) for word in marker.split()[:2])
        if b"-" in marker and not marker.endswith(b"-" + self._replication_id()):
            return [STRANGER]
        left_us = ready_at - self._now_us()
        if left_us <= 0:
            return None
        if left_us > span_ms * 1000:
            return [STRANGER]
        return [QUARANTINE, math.ceil(left_us / 1000)]

    def _fence(self, key: bytes) -> int:
        return fence_of(self._text(key))

    def _raise_fence(self, key: bytes, least: int, candidate: int, ttl_ms: bytes, card: bytes = b"") -> int:
        fence = max(least, candidate)
        self._set(key, b"%d" % fence + card, int(ttl_ms))
        return fence

    def _clamped(self, candidate: bytes, clamp: bytes) -> int:
        now = self._now_us()
        return min(max(int(candidate), now - int(clamp)), now + int(clamp))

    def _card(self, token: bytes, card: bytes) -> bytes:
        """What stands behind a fence: who was given it."""
        return b" %d %b %b" % (self._now_us(), token[:8], card)

    def _acquire(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker = keys
        token, ttl_ms, candidate, card, clamp, fence_ttl_ms, *_, expected = argv
        refusal = self._not_standing(self._text(marker), expected)
        if refusal:
            return refusal
        holder, fence = self._text(lock), self._fence(fence_key)
        if holder == token:
            return [1, fence]
        if holder is not None:
            return [0, self._pttl(lock), fence]
        if self._get(lock) is not None:
            return [OTHER_KIND]
        self._set(lock, token, int(ttl_ms))
        told = self._card(token, card)
        fence = self._raise_fence(fence_key, fence + 1, self._clamped(candidate, clamp), fence_ttl_ms, told)
        self._note_grant(lock, fence, token, card)
        return [1, fence]

    def _confirm(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        token, granted, fence, fence_ttl_ms, expected = argv
        reply = self._confirm_many(keys, [token, fence_ttl_ms, granted, fence, expected])
        return [1, max(int(granted), int(fence))] if reply == [1, 1] else reply

    def _confirm_many(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        token, fence_ttl_ms, *told, expected = argv
        refusal = self._not_standing(self._text(keys[2]), expected)
        if refusal:
            return refusal
        pairs = pairs_of(keys)
        mine = READERS if token.startswith(b"r:") else token
        for (lock, fence_key), granted in zip(pairs, told[::2], strict=True):
            stored = self._text(fence_key)
            if self._text(lock) != mine or stored is None or fence_of(stored) != int(granted):
                return [CHANGED]
        for (_, fence_key), granted, fence in zip(pairs, told[::2], told[1::2], strict=True):
            self._raise_fence(fence_key, int(granted), int(fence), fence_ttl_ms, card_of(self._text(fence_key)))
        return [1, 1]

    def _extend(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        fence_ttl_ms, *told, expected = argv
        refusal = self._not_standing(self._text(keys[2]), expected)
        if refusal and refusal[0] != QUARANTINE:
            return refusal
        said = b""
        for lock, fence_key, token, ttl_ms, fence in _each(keys, told):
            holder = self._text(lock)
            if token.startswith(b"r:"):
                said += self._extend_reader(lock, fence_key, token, int(ttl_ms), bool(refusal))
            elif holder == token:
                if self._pttl(lock) < int(ttl_ms):
                    self._set(lock, token, int(ttl_ms))
                stored = self._text(fence_key)
                self._raise_fence(fence_key, fence_of(stored), int(fence), fence_ttl_ms, card_of(stored))
                said += b"q" if refusal else b"y"
            elif refusal:
                said += b"m"
            elif holder is not None:
                said += b"n"
            else:
                said += b"a" if self._get(lock) is None else b"k"
        return [1, said, refusal[1]] if refusal else [1, said]

    def _extend_reader(self, lock: bytes, key: bytes, token: bytes, ttl_ms: int, quarantined: bool) -> bytes:
        now_ms = self._now_us() // 1000
        readers, holder = self._sorted(key), self._text(lock)
        until_ms = readers.get(token, 0)
        if holder != READERS or until_ms <= now_ms:
            return b"m" if quarantined else b"n" if holder not in (None, READERS) else b"a"
        if until_ms < now_ms + ttl_ms:
            readers[token] = now_ms + ttl_ms
        self._share(lock, key, readers)
        return b"q" if quarantined else b"y"

    def _share(self, lock: bytes, key: bytes, readers: dict[bytes, float]) -> None:
        """The lock is these readers', and lives as long as the last of them."""
        last_ms = int(max(readers.values())) - self._now_us() // 1000
        self._set(lock, READERS, last_ms)
        self._set(key, readers, last_ms)

    def _heal(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        fence_ttl_ms, *told, expected = argv
        refusal = self._not_standing(self._text(keys[2]), expected)
        if refusal and refusal[0] != QUARANTINE:
            return refusal
        said = b""
        broken = keys[len(keys) - len(told) // 3 :]
        for (lock, fence_key, token, ttl_ms, fence), broken_key in zip(_each(keys, told), broken, strict=True):
            holder, stored = self._text(lock), self._text(fence_key)
            shares = token.startswith(b"r:")
            later = not refusal or fence_of(stored) > int(fence)
            if int(self._text(broken_key) or 0) > int(fence):
                said += b"n"
            elif shares and (holder == READERS or self._get(lock) is None):
                now_ms = self._now_us() // 1000
                readers = {one: end for one, end in self._sorted(fence_key).items() if holder and end > now_ms}
                readers[token] = max(readers.get(token, 0), now_ms + int(ttl_ms))
                self._share(lock, fence_key, readers)
                said += b"y"
            elif shares or (holder not in (None, token) and later):
                said += b"n"
            elif holder is None and self._get(lock) is not None:
                said += b"k"
            else:
                if holder != token or self._pttl(lock) < int(ttl_ms):
                    self._set(lock, token, int(ttl_ms))
                self._raise_fence(fence_key, fence_of(stored), int(fence), fence_ttl_ms, card_of(stored))
                said += b"y"
        return [1, said]

    def _look(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker = keys
        refusal = self._not_standing(self._text(marker), argv[-1])
        if refusal:
            return refusal
        holder, fence = self._text(lock), self._fence(fence_key)
        if holder is not None and not (argv[0] == b"1" and holder == READERS):
            return [0, self._pttl(lock), fence]
        return [OTHER_KIND] if holder is None and self._get(lock) is not None else [1, fence]


@functools.lru_cache(1000)  # asked with every request
def digest(text: str) -> bytes:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16].encode()


def fence_of(stored: bytes | None) -> int:
    """The number in front of what is stored."""
    found = re.match(rb"\d+", stored or b"")
    return int(found.group()) if found else 0


def card_of(stored: bytes | None) -> bytes:
    """What stands behind that number."""
    return re.sub(rb"^\d+", b"", stored or b"", count=1)


def pairs_of(keys: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Lock key and fence key of each; the marker's key stands behind the first two."""
    flat = keys[:2] + keys[3:]
    return list(zip(flat[::2], flat[1::2], strict=True))


def _each(keys: list[bytes], told: list[bytes]) -> Iterator[tuple[bytes, bytes, bytes, bytes, bytes]]:
    """Lock key, fence key, token, ttl and fence of every lease."""
    flat = keys[:2] + keys[3:]
    for at in range(len(told) // 3):
        yield (*flat[2 * at : 2 * at + 2], *told[3 * at : 3 * at + 3])  # type: ignore[misc]
