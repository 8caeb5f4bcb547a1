"""The double of a Redis server: the scripts' meaning in Python, with a clock and a memory one can tamper with.

It understands exactly what the engine sends (its own scripts, loaded or not, CLIENT INFO and CLIENT KILL) and
answers what the real server would: a differential test runs the same random commands against both. Where a
function here and a script there differ, the script is right.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from ..redis import scripts
from ..redis.resp import ReplyError

STRANGER, QUARANTINE, ABSENT, OTHER_KIND, CHANGED = -1, -2, -3, -4, -5
CLOSED = 2**53 - 1

Reply = Any
Value = bytes | dict[bytes, bytes]


class ServerDouble:
    """One node's memory and the scripts it runs. `clock` gives the node's own time, in seconds.

    Scripts are run by one thread at a time. Others may tamper with its memory meanwhile: a script that finds a key
    gone in the midst of it goes on as if it had been deleted behind it.
    """

    def __init__(self, clock: Callable[[], float], run_id: str = "run-0") -> None:
        self.clock = clock
        self.run_id = run_id
        self.replication_id = "repl-0"
        self.role = "master"
        self.mode = "standalone"
        self.maxmemory = 0
        self.policy = "noeviction"
        self.on_kill: Callable[[int], None] | None = None
        """Called with the id of a connection that a client wants ended."""
        self._data: dict[bytes, tuple[Value, int | None]] = {}
        self._loaded: set[str] = set()
        self._scripts: dict[str, Callable[[list[bytes], list[bytes]], Reply]] = {
            scripts.ACQUIRE.sha: self._acquire,
            scripts.CONFIRM.sha: self._confirm,
            scripts.EXTEND.sha: self._extend,
            scripts.HEAL.sha: self._heal,
            scripts.RELEASE.sha: self._release,
            scripts.BREAK.sha: self._break,
            scripts.LOOK.sha: self._look,
            scripts.JOIN.sha: self._join,
        }

    # What a client sees.

    def execute(self, command: list[bytes], client_id: int = 0) -> Reply:
        """The reply to one command: int, bytes, None, a list of these, or a ReplyError."""
        match [command[0].upper(), *command[1:]]:
            case [b"EVALSHA", sha, count, *rest]:
                if sha.decode() not in self._loaded:
                    return ReplyError("NOSCRIPT No matching script. Please use EVAL.")
                return self._run(sha.decode(), int(count), rest)
            case [b"EVAL", source, count, *rest]:
                sha_ = hashlib.sha1(source, usedforsecurity=False).hexdigest()
                self._loaded.add(sha_)
                return self._run(sha_, int(count), rest)
            case [b"SCRIPT", b"LOAD", source]:
                self._loaded.add(hashlib.sha1(source, usedforsecurity=False).hexdigest())
                return b"loaded"
            case [b"CLIENT", b"INFO"]:
                return b"id=%d addr=%b name=" % (client_id, self._address(client_id))
            case [b"CLIENT", b"KILL", b"ID", victim, b"ADDR", address]:
                known = self._address(int(victim)) == address
                if known and self.on_kill is not None:
                    self.on_kill(int(victim))
                return int(known)
        return ReplyError(f"ERR the double does not know {command[0]!r}")

    # What a test or a simulation does to it.

    def get(self, key: str) -> Value | None:
        return self._get(key.encode())

    def set(self, key: str, value: Value, ttl_ms: int | None = None) -> None:
        self._set(key.encode(), value, ttl_ms)

    def pttl(self, key: str) -> int:
        return self._pttl(key.encode())

    def delete(self, key: str) -> None:
        self._data.pop(key.encode(), None)

    def keys(self) -> list[str]:
        return sorted(key.decode() for key in list(self._data) if self._get(key) is not None)

    def flush(self) -> None:
        self._data.clear()

    def forget_scripts(self) -> None:
        self._loaded.clear()

    def snapshot(self) -> dict[bytes, tuple[Value, int | None]]:
        """What a disk would hold now."""
        return dict(self._data)

    def restart(self, run_id: str, disk: dict[bytes, tuple[Value, int | None]] | None = None) -> None:
        """A new process: another run id, and only what the disk holds."""
        self.run_id = run_id
        self.replication_id = f"repl-of-{run_id}"
        self._data = dict(disk or {})
        self._loaded.clear()

    def _address(self, client_id: int) -> bytes:
        """Of a connection; no two processes of a server have one in common."""
        return f"{self.run_id}:{client_id}".encode()

    def _replication_id(self) -> bytes:
        return _digest(self.replication_id)

    # Memory.

    def _now_us(self) -> int:
        return int(self.clock() * 1_000_000)

    def _get(self, key: bytes) -> Value | None:
        entry = self._data.get(key)
        if entry is None:
            return None
        value, expires_ms = entry
        if expires_ms is not None and self._now_us() // 1000 > expires_ms:
            self._data.pop(key, None)
            return None
        return value

    def _text(self, key: bytes) -> bytes | None:
        """As MGET has it: a value of another type counts as missing."""
        value = self._get(key)
        return value if isinstance(value, bytes) else None

    def _set(self, key: bytes, value: Value, ttl_ms: int | None) -> None:
        self._data[key] = (value, None if ttl_ms is None else self._now_us() // 1000 + ttl_ms)

    def _pttl(self, key: bytes) -> int:
        entry = self._data.get(key)
        if entry is None or self._get(key) is None:
            return -2
        expires_ms = entry[1]
        return -1 if expires_ms is None else expires_ms - self._now_us() // 1000

    # The scripts, each under its own name.

    def _run(self, sha: str, count: int, rest: list[bytes]) -> Reply:
        if sha not in self._scripts:
            return ReplyError("ERR the double does not know this script")
        return self._scripts[sha](rest[:count], rest[count:])

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
        holder = self._get(keys[0])
        if holder == argv[0]:
            self._data.pop(keys[0], None)
            return 1
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

    def _join(self, keys: list[bytes], argv: list[bytes]) -> Reply:
        verb, format_, fleet, nodes, max_ttl_ms, durable, quarantine, *least_ms = argv
        now = self._now_us()
        identity = _digest(self.run_id) + (b"-" + self._replication_id() if quarantine == b"1" else b"")

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


def _digest(text: str) -> bytes:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16].encode()


def _each(keys: list[bytes], told: list[bytes]) -> Iterator[tuple[bytes, bytes, bytes, bytes, bytes]]:
    """Lock key, fence key, token, ttl and fence of every lease; the marker's key stands behind the first two."""
    pairs = keys[:2] + keys[3:]
    for at in range(len(told) // 3):
        yield (*pairs[2 * at : 2 * at + 2], *told[3 * at : 3 * at + 3])  # type: ignore[misc]


def encode(reply: Reply) -> bytes:
    """A reply as RESP2."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, ReplyError):
        return b"-%b\r\n" % str(reply).encode()
    return b"*%d\r\n" % len(reply) + b"".join(encode(item) for item in reply)
