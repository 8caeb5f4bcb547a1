"""The scripts about locks, each under its own name. Where they differ, the script is right."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

from .keys import Keys, Reply

STRANGER, QUARANTINE, ABSENT, OTHER_KIND, CHANGED = -1, -2, -3, -4, -5


class Locks(Keys):
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

    def _raise_fence(self, key: bytes, stored: int, to: int, ttl_ms: bytes) -> int:
        fence = max(stored, to)
        self._set(key, b"%d" % fence, int(ttl_ms))
        return fence

    def _acquire(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker = keys
        token, ttl_ms, candidate, clamp, fence_ttl_ms, expected = argv
        refusal = self._not_standing(self._text(marker), expected)
        if refusal:
            return refusal
        holder = self._text(lock)
        fence = int(self._text(fence_key) or 0)
        if holder == token:
            return [1, fence]
        if holder is not None:
            return [0, self._pttl(lock), fence]
        if self._get(lock) is not None:
            return [OTHER_KIND]
        self._set(lock, token, int(ttl_ms))
        now = self._now_us()
        clamped = min(max(int(candidate), now - int(clamp)), now + int(clamp))
        return [1, self._raise_fence(fence_key, fence + 1, clamped, fence_ttl_ms)]

    def _confirm(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker = keys
        token, granted, fence, fence_ttl_ms, expected = argv
        refusal = self._not_standing(self._text(marker), expected)
        if refusal:
            return refusal
        stored = self._text(fence_key)
        if self._text(lock) != token or stored is None or int(stored) != int(granted):
            return [CHANGED]
        return [1, self._raise_fence(fence_key, int(stored), int(fence), fence_ttl_ms)]

    def _extend(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        fence_ttl_ms, *told, shorten, expected = argv
        refusal = self._not_standing(self._text(keys[2]), expected)
        if refusal and refusal[0] != QUARANTINE:
            return refusal
        said = b""
        for lock, fence_key, token, ttl_ms, fence in _each(keys, told):
            holder = self._text(lock)
            if holder == token:
                if shorten == b"1" or self._pttl(lock) < int(ttl_ms):
                    self._set(lock, token, int(ttl_ms))
                self._raise_fence(fence_key, int(self._text(fence_key) or 0), int(fence), fence_ttl_ms)
                said += b"q" if refusal else b"y"
            elif refusal:
                said += b"m"
            elif holder is not None:
                said += b"n"
            else:
                said += b"a" if self._get(lock) is None else b"k"
        return [1, said, refusal[1]] if refusal else [1, said]

    def _heal(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        fence_ttl_ms, *told, expected = argv
        refusal = self._not_standing(self._text(keys[2]), expected)
        if refusal and refusal[0] != QUARANTINE:
            return refusal
        said = b""
        broken = keys[len(keys) - len(told) // 3 :]
        for (lock, fence_key, token, ttl_ms, fence), broken_key in zip(_each(keys, told), broken, strict=True):
            holder = self._text(lock)
            later = not refusal or int(self._text(fence_key) or 0) > int(fence)
            if int(self._text(broken_key) or 0) > int(fence) or (holder not in (None, token) and later):
                said += b"n"
            elif holder is None and self._get(lock) is not None:
                said += b"k"
            else:
                if holder != token or self._pttl(lock) < int(ttl_ms):
                    self._set(lock, token, int(ttl_ms))
                self._raise_fence(fence_key, int(self._text(fence_key) or 0), int(fence), fence_ttl_ms)
                said += b"y"
        return [1, said]

    def _release(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, queue_key = keys
        token, wake, member, locker, stay_ms, channel = argv
        holder = self._get(lock)
        mine = holder == token
        if mine and stay_ms == b"0":
            self._data.pop(lock, None)
        elif mine:
            self._set(lock, b"ql:closed", int(stay_ms))
        if member and wake == b"1":
            self._unqueue(queue_key, member)
        others = False
        free = stay_ms == b"0" if mine else holder is None and not token
        while free and wake == b"1" and (head := self._head(queue_key)) is not None:
            where, _, id_ = head.partition(b":")
            if where and where == locker:
                break
            others = True
            if not where or self._publish(channel + where, id_):
                break
            others = False
            self._unqueue(queue_key, head)
        if mine:
            return 2 if others else 1
        return ABSENT if holder is None else 0

    def _break(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker, broken_key = keys
        refusal = self._not_standing(self._text(marker), argv[-1])
        if refusal and refusal[0] == STRANGER:
            return refusal
        holder = self._text(lock)
        if holder is None and self._get(lock) is not None:
            return [OTHER_KIND]
        self._data.pop(lock, None)
        fence_ttl_ms, broken_ttl_ms, known, _ = argv
        fence = max(int(self._text(fence_key) or 0), int(known)) + 1
        self._set(fence_key, b"%d" % fence, int(fence_ttl_ms))
        self._set(broken_key, b"%d" % fence, int(broken_ttl_ms))
        return [ABSENT] if holder is None else [1, fence]

    def _look(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker = keys
        refusal = self._not_standing(self._text(marker), argv[-1])
        if refusal:
            return refusal
        fence = int(self._text(fence_key) or 0)
        if self._text(lock) is not None:
            return [0, self._pttl(lock), fence]
        return [OTHER_KIND] if self._get(lock) is not None else [1, fence]

    # The queue.

    def _queue(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker, queue_key = keys
        token, ttl_ms, _, clamp, _, member, order, patience_ms, strict, grace_ms, channel, expected = argv
        refusal = self._not_standing(self._text(marker), expected)
        if refusal:
            return refusal
        now = self._now_us()
        now_ms = now // 1000
        queue = self._sorted(queue_key)
        for one in sorted(
            (key for key, score in queue.items() if -now_ms <= score <= -1), key=lambda k: (queue[k], k)
        )[:100]:
            self._unqueue(queue_key, one[2:])
        queue = self._sorted(queue_key)
        place = wait_ms = 0
        came = min(max(int(order), now - int(clamp)), now + int(clamp))
        came = int(queue.get(member, came)) if member else came
        holder = self._text(lock)
        if holder is not None and holder != token:
            wait_ms = self._pttl(lock) or 1
        elif strict == b"1" and holder != token:
            while (head := self._head(queue_key)) not in (None, member):
                assert head is not None
                if member and queue[head] > came:
                    break
                where, _, id_ = head.partition(b":")
                if not where or self._publish(channel + where, id_):
                    until_ms = -int(queue.get(b"u:" + head, 0))
                    wait_ms = max(1, min(until_ms - now_ms, int(grace_ms)))
                    queue[b"u:" + head] = -(now_ms + wait_ms)
                    break
                self._unqueue(queue_key, head)
                queue = self._sorted(queue_key)
        if member:
            lasts_ms = int(patience_ms) if wait_ms else int(ttl_ms)
            left_ms = self._pttl(queue_key)
            queue[member] = came
            queue[b"u:" + member] = -(now_ms + lasts_ms)
            if left_ms < lasts_ms:
                self._set(queue_key, queue, lasts_ms + 1000)
            place = sum(0 <= score < came for score in queue.values())
        if wait_ms:
            return [0, wait_ms, int(self._text(fence_key) or 0), place]
        return self._acquire(keys[:3], [*argv[:5], expected])

    def _head(self, queue_key: bytes) -> bytes | None:
        came = [(score, one) for one, score in self._sorted(queue_key).items() if score >= 0]
        return min(came)[1] if came else None

    def _unqueue(self, queue_key: bytes, member: bytes) -> None:
        queue = self._sorted(queue_key)
        queue.pop(member, None)
        queue.pop(b"u:" + member, None)
        if not queue:
            self._data.pop(queue_key, None)


def digest(text: str) -> bytes:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16].encode()


def _each(keys: list[bytes], told: list[bytes]) -> Iterator[tuple[bytes, bytes, bytes, bytes, bytes]]:
    """Lock key, fence key, token, ttl and fence of every lease; the marker's key stands behind the first two."""
    pairs = keys[:2] + keys[3:]
    for at in range(len(told) // 3):
        yield (*pairs[2 * at : 2 * at + 2], *told[3 * at : 3 * at + 3])  # type: ignore[misc]
