"""The memory of a double: keys, values of the kinds we know, and when they expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Reply = Any
Value = bytes | dict[bytes, bytes] | dict[bytes, float] | list[tuple[bytes, ...]]
"""A string, a hash, a sorted set, or a stream."""


class Keys:
    """One node's memory. `clock` gives the node's own time, in seconds."""

    clock: Callable[[], float]

    def __init__(self) -> None:
        self._data: dict[bytes, tuple[Value, int | None]] = {}
        self.on_publish: Callable[[bytes, bytes], int] | None = None
        """Called with a channel and a message; gives how many have heard it."""

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

    def _sorted(self, key: bytes) -> dict[bytes, float]:
        value = self._get(key)
        return value if isinstance(value, dict) else {}  # type: ignore[return-value]

    def _publish(self, channel: bytes, message: bytes) -> int:
        return 0 if self.on_publish is None else self.on_publish(channel, message)
