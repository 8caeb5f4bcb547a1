"""The language of etcd's JSON gateway: operations of a transaction, keys, and what is answered.

Keys and values are base64 there, and numbers of 64 bits are text; what is zero or false is left out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

Op = dict[str, Any]
Compare = dict[str, Any]


def b64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def after(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin so. (No key of ours ends in 0xFF.)"""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class Kv(NamedTuple):
    """One key, as it is stored."""

    key: bytes
    value: bytes
    created: int
    """The revision of the store in which it came to be."""
    modified: int
    lease: int

    @classmethod
    def of(cls, told: dict[str, Any]) -> Kv:
        return cls(
            b64decode(told["key"]),
            b64decode(told.get("value", "")),
            int(told.get("create_revision", 0)),
            int(told.get("mod_revision", 0)),
            int(told.get("lease", 0)),
        )


class Told:
    """The answer to a transaction, or to one within it."""

    def __init__(self, told: dict[str, Any]) -> None:
        header = told.get("header", {})
        self.succeeded = bool(told.get("succeeded"))
        self.revision = int(header.get("revision", 0))
        self.term = int(header.get("raft_term", 0))
        self._responses = told.get("responses", [])

    def kvs(self, index: int) -> list[Kv]:
        """What a range found."""
        return [Kv.of(one) for one in self._responses[index]["response_range"].get("kvs", [])]

    def first(self, index: int) -> Kv | None:
        found = self.kvs(index)
        return found[0] if found else None

    def count(self, index: int) -> int:
        """How many a range would have found without its limit."""
        return int(self._responses[index]["response_range"].get("count", 0))

    def deleted(self, index: int) -> int:
        return int(self._responses[index]["response_delete_range"].get("deleted", 0))

    def within(self, index: int) -> Told:
        """The answer to a transaction within this one."""
        return Told(self._responses[index]["response_txn"])

    def __len__(self) -> int:
        return len(self._responses)


# What a transaction does.


def put(key: bytes, value: bytes, lease: int) -> Op:
    return {"request_put": {"key": b64(key), "value": b64(value), "lease": str(lease)}}


def delete(key: bytes, end: bytes = b"") -> Op:
    return {"request_delete_range": _range(key, end)}


def get(key: bytes, end: bytes = b"", *, limit: int = 0, last: bool = False, bare: bool = False) -> Op:
    """`last`: from the end. `bare`: without the values."""
    wanted: dict[str, Any] = _range(key, end)
    if limit:
        wanted["limit"] = str(limit)
    if last:
        wanted |= {"sort_order": "DESCEND", "sort_target": "KEY"}
    if bare:
        wanted["keys_only"] = True
    return {"request_range": wanted}


def txn(compare: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> dict[str, Any]:
    return {"compare": list(compare), "success": list(then), "failure": list(otherwise)}


def within(compare: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> Op:
    """A transaction within another."""
    return {"request_txn": txn(compare, then, otherwise)}


def _range(key: bytes, end: bytes) -> dict[str, Any]:
    return {"key": b64(key), "range_end": b64(end)} if end else {"key": b64(key)}


# What it depends on.


def absent(key: bytes, end: bytes = b"") -> Compare:
    """There is no such key, or none in that range."""
    return {"target": "CREATE", "result": "EQUAL", "create_revision": "0", **_range(key, end)}


def present(key: bytes) -> Compare:
    return {"target": "CREATE", "result": "GREATER", "create_revision": "0", **_range(key, b"")}


def created(key: bytes, revision: int) -> Compare:
    return {"target": "CREATE", "result": "EQUAL", "create_revision": str(revision), **_range(key, b"")}


def modified(key: bytes, revision: int) -> Compare:
    return {"target": "MOD", "result": "EQUAL", "mod_revision": str(revision), **_range(key, b"")}


def unchanged_since(key: bytes, end: bytes, revision: int) -> Compare:
    """Nothing in that range was set later than that."""
    return {"target": "MOD", "result": "LESS", "mod_revision": str(revision + 1), **_range(key, end)}


def valued(key: bytes, value: bytes) -> Compare:
    return {"target": "VALUE", "result": "EQUAL", "value": b64(value), **_range(key, b"")}


def leased(key: bytes, lease: int) -> Compare:
    return {"target": "LEASE", "result": "EQUAL", "lease": str(lease), **_range(key, b"")}
