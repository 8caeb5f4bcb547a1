"""The scripts about queues, and about locks that are shared or several. Where they differ, the script is right."""

from __future__ import annotations

import fnmatch
import math
import re

from .journal import short
from .keys import Reply
from .locks import CHANGED, OTHER_KIND, READERS, STRANGER, Locks, fence_of, pairs_of

ABSENT = -3


class Family(Locks):
    """What the scripts do to queues, readers and slots."""

    def _release(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        return self._release_many(keys, argv)

    def _release_many(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        token, wake, member, locker, stay_ms, channel = argv
        deleted = held = others = False
        seen: set[bytes] = set()
        for lock, queue in zip(keys[::2], keys[1::2], strict=True):
            holder = self._get(lock)
            mine = holder == token
            if mine and stay_ms == b"0":
                self._data.pop(lock, None)
            elif mine:
                self._set(lock, b"ql:closed", int(stay_ms))
            deleted, held = deleted or mine, held or holder is not None
            if mine:
                self._note_end(lock, token, True, wake)
            if wake == b"1":
                if member:
                    self._unqueue(queue, member)
                sharing = holder == READERS and not token
                free = mine or sharing or (holder is None and not token)
                if free and (mine or queue not in seen):
                    others = self._tell(queue, channel, locker, sharing) or others
                seen.add(queue)
        if deleted:
            return 2 if others else 1
        for lock in keys[::2]:
            self._note_end(lock, token, False, wake)
        return 0 if held else ABSENT

    def _unread(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, queue, key = keys
        token, wake, member, locker, _, channel = argv
        if member and wake == b"1":
            self._unqueue(queue, member)
        holder, readers = self._get(lock), self._sorted(key)
        if readers.pop(token, None) is None:
            return 0 if holder is not None else ABSENT
        if not readers:
            self._data.pop(key, None)
        self._note(b"released", lock, 0, short(token), b" " + wake)
        if holder != READERS:
            return 1
        left_ms = int(max(readers.values(), default=0)) - self._now_us() // 1000
        if readers and left_ms > 0:
            self._set(lock, READERS, left_ms)
            return 1
        self._data.pop(lock, None)
        self._data.pop(key, None)
        return 2 if wake == b"1" and self._tell(queue, channel, locker) else 1

    def _tell(self, queue: bytes, channel: bytes, locker: bytes, sharing: bool = False) -> bool:
        """Tells who is next; true if that is somebody elsewhere."""
        others, at = False, 0
        while True:
            heads = self._heads(queue)[at:]
            if not heads:
                return others
            reader = heads[0].endswith(b"~r")
            if (at or sharing) and not reader:
                return others
            where, _, id_ = heads[0].partition(b":")
            if not where or where == locker or self._publish(channel + where, id_):
                others = others or where != locker or not where
                if not reader:
                    return others
                at += 1
            else:
                self._unqueue(queue, heads[0])

    def _queue(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker, queue = keys
        refusal = self._not_standing(self._text(marker), argv[-1])
        if refusal:
            return refusal
        wait = self._turn(lock, fence_key, queue, argv, self._pttl(lock))
        return wait or self._acquire(keys[:3], argv)

    def _read(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker, queue, key = keys
        token, ttl_ms, candidate, card, clamp, fence_ttl_ms, *_, expected = argv
        refusal = self._not_standing(self._text(marker), expected)
        if refusal:
            return refusal
        if wait := self._turn(lock, fence_key, queue, argv, self._pttl(lock)):
            return wait
        holder, fence = self._text(lock), self._fence(fence_key)
        if holder is None and self._get(lock) is not None:
            return [OTHER_KIND]
        now_ms = self._now_us() // 1000
        readers = {one: end for one, end in self._sorted(key).items() if holder and end > now_ms}
        readers[token] = now_ms + int(ttl_ms)
        self._share(lock, key, readers)
        words = expected.split()
        least = int(words[0]) - int(words[5]) * 500
        if not fence:
            least = max(least, self._clamped(candidate, clamp))
        if fence < least:
            fence = least
            self._set(fence_key, b"%d" % fence, int(fence_ttl_ms))
        else:
            self._set(fence_key, self._text(fence_key) or b"", int(fence_ttl_ms))
        self._note_expired(lock)
        self._note(b"acquired", lock, fence, short(token), card)
        return [1, fence]

    def _any(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        token, marker, queue = argv[0], keys[2], keys[3]
        refusal = self._not_standing(self._text(marker), argv[-1])
        if refusal:
            return refusal
        pairs = pairs_of([*keys[:3], *keys[4:]])
        holders = [self._text(lock) for lock, _ in pairs]
        slot = 0
        left_ms = self._pttl(pairs[0][0])
        if holders[0] is not None and holders[0] != token:
            left_ms = min(
                self._pttl(lock) for (lock, _), one in zip(pairs, holders, strict=True) if one is not None
            )
            later = range(1, len(pairs))
            mine = [i for i in later if holders[i] == token]
            free = [i for i in later if holders[i] is None]
            slot = (mine or free or [0])[0]
        lock, fence_key = pairs[slot]
        if wait := self._turn(lock, fence_key, queue, argv, left_ms, slots=True):
            return wait
        reply = self._acquire([lock, fence_key, marker], argv)
        return [*reply, slot] if reply[0] == 1 else reply

    def _all(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        (
            token,
            ttl_ms,
            candidate,
            card,
            clamp,
            fence_ttl_ms,
            member,
            order,
            patience_ms,
            count,
            channel,
            expected,
        ) = argv
        refusal = self._not_standing(self._text(keys[2]), expected)
        if refusal:
            return refusal
        pairs, queues = pairs_of(keys[: 2 * int(count) + 1]), keys[2 * int(count) + 1 :]
        for (lock, fence_key), queue in zip(pairs, queues, strict=True):
            holder = self._text(lock)
            if holder is not None and holder != token:
                if member:
                    self._sweep(queue)
                came = self._came(queue, member, order, clamp)
                place = self._enqueue(queue, member, came, int(patience_ms)) if member else 0
                for (other, _), its_queue in zip(pairs, queues, strict=True):
                    if (
                        member
                        and its_queue != queue
                        and self._unqueue(its_queue, member)
                        and self._get(other) is None
                    ):
                        self._tell(its_queue, channel, b"")
                return [0, self._pttl(lock), self._fence(fence_key), place]
            if holder is None and self._get(lock) is not None:
                return [OTHER_KIND]
        answer = [1]
        for lock, fence_key in pairs:
            fence = self._fence(fence_key)
            if self._text(lock) != token:
                self._set(lock, token, int(ttl_ms))
                told = self._card(token, card)
                fence = self._raise_fence(fence_key, fence + 1, self._clamped(candidate, clamp), fence_ttl_ms, told)
                self._note_grant(lock, fence, token, card)
            answer.append(fence)
        for queue in queues if member else ():
            if b"u:" + member in self._sorted(queue):
                self._sorted(queue)[b"u:" + member] = -(self._now_us() // 1000 + int(ttl_ms))
        return answer

    def _sweep(self, queue: bytes) -> None:
        """Takes away who is good for nothing any more."""
        now_ms = self._now_us() // 1000
        over = sorted((score, one) for one, score in self._sorted(queue).items() if -now_ms <= score <= -1)
        for _, one in over[:100]:
            self._unqueue(queue, one[2:])

    def _downgrade(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker, queue, key = keys
        token, ttl_ms, reader, member, channel, expected = argv
        refusal = self._not_standing(self._text(marker), expected)
        if refusal:
            return refusal
        if self._text(lock) != token:
            return [CHANGED]
        if member:
            self._unqueue(queue, member)
        self._share(lock, key, {reader: self._now_us() // 1000 + int(ttl_ms)})
        fence = fence_of(self._text(fence_key))
        self._note_end(lock, token, True, b"1")
        self._note(b"acquired", lock, fence, short(reader), b"read -")
        self._tell(queue, channel, b"", sharing=True)
        return [1, fence]

    def _inspect(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker, queue, key = keys
        refusal = self._not_standing(self._text(marker), argv[-1])
        if refusal and refusal[0] == STRANGER:
            return refusal
        holder = self._text(lock)
        if holder is None and self._get(lock) is not None:
            return [OTHER_KIND]
        now_ms = self._now_us() / 1000
        ends = sorted((end, one) for one, end in self._sorted(key).items())
        readers = [part for end, one in ends for part in (one, math.floor(end - now_ms))]
        return [
            1,
            holder or b"",
            self._pttl(lock),
            self._text(fence_key) or b"",
            readers,
            self._heads(queue)[:1000],
        ]

    def _inspect_many(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        refusal = self._not_standing(self._text(keys[2]), argv[-1])
        if refusal and refusal[0] == STRANGER:
            return refusal
        count = (len(keys) - 1) // 4
        pairs, further = pairs_of(keys[: 2 * count + 1]), keys[2 * count + 1 :]
        answers: list[Reply] = []
        told = 0
        for (lock, fence_key), queue, key in zip(pairs, further[::2], further[1::2], strict=True):
            answers.append(self._inspect([lock, fence_key, keys[2], queue, key], argv))
            if len(answers[-1]) > 1:
                if self._text(lock) != READERS:
                    answers[-1][4] = []
                told += len(answers[-1][4]) // 2 + len(answers[-1][5])
            if told > 2000:
                break
        return [2, answers]

    def _scan(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        _, match, _, head, prefix = argv
        wanted = re.compile(fnmatch.translate(match.decode().replace("[", "[[]")))
        known = [key for key in list(self._data) if self._get(key) is not None and wanted.match(key.decode())]
        names = [key[len(head) : -1] for key in known]
        return [b"0", *(name for name in names if self._get(prefix + name) is not None)]

    def _cell(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        key, _, marker = keys
        verb, asked, value, ttl_ms, expected = argv
        refusal = self._not_standing(self._text(marker), expected)
        if refusal:
            return refusal
        stored = self._text(key)
        if stored is None and self._get(key) is not None:
            return [OTHER_KIND]
        words = (stored or b"0 0 ").split(b" ", 2)
        version, known, entered, held = int(asked), int(words[0]), int(words[1]), words[2]
        if verb == b"get":
            return [1, known, held]
        if verb == b"swap":
            if known != version:
                return [CHANGED, known]
            known = max(version + 1, self._now_us())
        elif known > version or entered > version:
            return [CHANGED, max(known, entered)]
        elif verb == b"enter":
            entered, value = version, held
        else:
            known = version
        self._set(key, b"%d %d " % (known, entered) + value, int(ttl_ms))
        return [1, known, value] if verb == b"enter" else [1, known]

    def _break(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        lock, fence_key, marker, broken_key, readers_key, queue = keys
        refusal = self._not_standing(self._text(marker), argv[-1])
        if refusal and refusal[0] == STRANGER:
            return refusal
        holder = self._text(lock)
        if holder is None and self._get(lock) is not None:
            return [OTHER_KIND]
        fence_ttl_ms, broken_ttl_ms, known, only, channel, *by, _ = argv
        if 0 < int(only) < (stored := self._fence(fence_key)):
            return [ABSENT] if holder is None else [CHANGED, stored]
        self._data.pop(lock, None)
        self._data.pop(readers_key, None)
        if holder is not None:
            self._note_broken(lock, self._fence(fence_key), b"".join(by), holder)
        fence = max(self._fence(fence_key), int(known)) + 1
        self._set(fence_key, b"%d" % fence, int(fence_ttl_ms))
        self._set(broken_key, b"%d" % fence, int(broken_ttl_ms))
        self._tell(queue, channel, b"")
        return [ABSENT] if holder is None else [1, fence]

    # The queue.

    def _turn(
        self, lock: bytes, fence_key: bytes, queue_key: bytes, argv: list[bytes], left_ms: int, slots: bool = False
    ) -> Reply:
        """The answer to whoever has to wait; None: the lock is free, and theirs."""
        token, ttl_ms, _, _, clamp, _, member, order, patience_ms, *flags, _ = argv
        strict, grace_ms, channel, shared, again = (
            flags[0] == b"1",
            int(flags[1]),
            flags[2],
            flags[3],
            flags[4] == b"1",
        )
        now_ms = self._now_us() // 1000
        holder = self._text(lock)
        readers = shared == b"1" and holder == READERS
        free = holder in (None, token) or readers
        if again or (strict and free):
            self._sweep(queue_key)
        came = self._came(queue_key, member, order, clamp) if again else self._clamped(order, clamp)
        wait_ms = 0
        if not free:
            wait_ms = left_ms or 1
        elif strict and holder != token:
            while True:
                queue = self._sorted(queue_key)
                heads = [one for one in self._heads(queue_key) if shared == b"0" or not one.endswith(b"~r")]
                if not heads or heads[0] == member or (member and (queue[heads[0]], heads[0]) > (came, member)):
                    break
                if readers:
                    wait_ms = max(1, left_ms)
                    break
                if not again:
                    wait_ms = grace_ms
                    break
                where, _, id_ = heads[0].partition(b":")
                if not where or self._publish(channel + where, id_):
                    until_ms = -int(queue.get(b"u:" + heads[0], 0))
                    wait_ms = max(1, min(until_ms - now_ms, grace_ms))
                    queue[b"u:" + heads[0]] = -(now_ms + wait_ms)
                    break
                self._unqueue(queue_key, heads[0])
        place = 0
        lasts_ms = int(patience_ms) if wait_ms else int(ttl_ms)
        if member and not wait_ms and (shared == b"1" or slots):
            self._unqueue(queue_key, member)
        elif member and (strict or wait_ms):
            place = self._enqueue(queue_key, member, came, lasts_ms)
        elif member and again and b"u:" + member in self._sorted(queue_key):
            self._sorted(queue_key)[b"u:" + member] = -(now_ms + lasts_ms)
        return [0, wait_ms, self._fence(fence_key), place] if wait_ms else None

    def _came(self, queue_key: bytes, member: bytes, order: bytes, clamp: bytes) -> int:
        """When it came; it keeps the place it was given."""
        return int(self._sorted(queue_key).get(member, self._clamped(order, clamp)))

    def _enqueue(self, queue_key: bytes, member: bytes, came: int, lasts_ms: int) -> int:
        """Gives how many are in front of it."""
        queue, left_ms = self._sorted(queue_key), self._pttl(queue_key)
        queue[member] = came
        queue[b"u:" + member] = -(self._now_us() // 1000 + lasts_ms)
        if left_ms < lasts_ms:
            self._set(queue_key, queue, 2 * lasts_ms + 1000)
        return sum(0 <= score < came for score in queue.values())

    def _heads(self, queue_key: bytes) -> list[bytes]:
        return [
            one for _, one in sorted((score, one) for one, score in self._sorted(queue_key).items() if score >= 0)
        ]

    def _unqueue(self, queue_key: bytes, member: bytes) -> bool:
        """True if it was there."""
        queue = self._sorted(queue_key)
        found = queue.pop(member, None) is not None
        queue.pop(b"u:" + member, None)
        if not queue:
            self._data.pop(queue_key, None)
        return found
