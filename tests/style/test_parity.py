"""The two fronts: the same names, parameters, defaults and words; only what must differ does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import quorumlock
from quorumlock import (
    AsyncCell,
    AsyncElection,
    AsyncLease,
    AsyncLock,
    AsyncLocker,
    AsyncReadWrite,
    Cell,
    Election,
    Lease,
    Lock,
    Locker,
    ReadWrite,
)

PAIRS: list[tuple[type, type]] = [
    (Locker, AsyncLocker),
    (Lock, AsyncLock),
    (Lease, AsyncLease),
    (ReadWrite, AsyncReadWrite),
    (Election, AsyncElection),
    (Cell, AsyncCell),
]
pairs = pytest.mark.parametrize(("sync", "aio"), PAIRS, ids=[sync.__name__ for sync, _ in PAIRS])

RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
ENTRANCES = {"__enter__", "__exit__", "__aenter__", "__aexit__"}
WAITING = {
    "acquire",
    "try_acquire",
    "locked",
    "extend",
    "release",
    "break_",
    "init_fleet",
    "nodes",
    "close",
    "inspect",
    "list",
    "survey",
    "journal",
    "report_refusal",
    "downgrade",
    "leader",
    "get",
    "set",
    "update",
    *RENAMED.values(),
}
"""What talks to nodes, and is awaited on the asyncio side."""


def awaited(kind: type, name: str) -> bool:
    return name in WAITING and (kind, name) != (Locker, "locked")  # which is the decorator, not the question


def public(kind: type) -> dict[str, Any]:
    """Everything a user may touch, under the name it has for threads."""
    found = {}
    for name in dir(kind):
        if not name.startswith("_") or name in ENTRANCES:
            found[RENAMED.get(name, name)] = inspect.getattr_static(kind, name)
    return found


def told(text: str | None) -> str:
    return (text or "").replace("Async", "").replace("Coroutine[Any, Any, T]", "T")


def signature(function: Callable[..., object]) -> str:
    return told(str(inspect.signature(function)))


def differences(sync: type, aio: type) -> list[str]:
    """What differs that should not."""
    ours, theirs = public(sync), public(aio)
    found = [f"only one side has {name}" for name in ours.keys() ^ theirs.keys()]
    for name in ours.keys() & theirs.keys():
        one, other = ours[name], theirs[name]
        if type(one) is not type(other):
            found.append(f"{name} is a {type(one).__name__} and a {type(other).__name__}")
            continue
        if told(one.__doc__) != told(other.__doc__):
            found.append(f"{name}: docstrings")
        if callable(one):
            if signature(one) != signature(other):
                found.append(f"{name}: {signature(one)} and {signature(other)}")
            if inspect.iscoroutinefunction(one) or inspect.iscoroutinefunction(other) is not awaited(sync, name):
                found.append(f"{name}: only what talks to nodes is awaited, and only for asyncio")
    return sorted(found)


@pairs
def test_both_fronts_offer_the_same(sync: type, aio: type) -> None:
    assert differences(sync, aio) == []


@pairs
def test_everything_public_is_documented(sync: type, aio: type) -> None:
    for name, member in public(sync).items():
        if name not in ENTRANCES and (callable(member) or isinstance(member, property)):
            assert member.__doc__ or name == "name", f"{sync.__name__}.{name} has no docstring"


@pairs
def test_classes_say_the_same_of_themselves(sync: type, aio: type) -> None:
    def about(kind: type) -> str:
        return told(kind.__doc__).partition("safe to share")[0]

    assert about(sync) == about(aio)
    assert about(sync)


def test_both_ways_to_connect_take_the_same() -> None:
    one, other = inspect.signature(quorumlock.connect), inspect.signature(quorumlock.connect_async)
    assert list(one.parameters.values()) == list(other.parameters.values())
    assert (one.return_annotation, other.return_annotation) == ("Locker", "AsyncLocker")
    assert not inspect.iscoroutinefunction(quorumlock.connect_async), "it connects on first use"
    for parameter in one.parameters:
        assert f"`{parameter}`" in (quorumlock.connect.__doc__ or ""), f"{parameter} is not explained"


CONTRACT = {
    "connect": ["urls", "prefix", "node_timeout", "drift", "max_ttl", "quarantine", "durable", "fence_ttl",
                "identify", "retry", "patience", "group", "clients", "fleet", "journal"],
    "Locker.lock": ["self", "name", "ttl", "timeout", "keep", "max_hold", "reentrant", "fair", "lock_delay",
                    "at_least", "note", "on_lost"],
    "Locker.locked": ["self", "name", "ttl", "timeout", "keep", "max_hold", "reentrant", "fair", "lock_delay",
                      "at_least", "note", "on_lost", "on_busy"],
    "Lock.acquire": ["self", "timeout"],
    "Lock.try_acquire": ["self"],
    "Lock.locked": ["self"],
    "Lease.extend": ["self", "ttl"],
    "Lease.release": ["self"],
    "Lease.check": ["self"],
    "Lease.remaining": ["self"],
    "Locker.read_write": ["self", "name"],
    "Locker.semaphore": ["self", "name", "permits", "ttl", "timeout", "keep", "max_hold", "fair", "lock_delay",
                         "at_least", "note", "on_lost"],
    "Locker.multi": ["self", "names", "ttl", "timeout", "keep", "max_hold", "lock_delay", "at_least", "note",
                     "on_lost"],
    "Locker.election": ["self", "name", "ttl", "note", "on_elected", "on_lost"],
    "Locker.cell": ["self", "name", "ttl"],
    "Locker.inspect": ["self", "name"],
    "Locker.list": ["self", "pattern", "limit"],
    "Locker.nodes": ["self", "samples"],
    "ReadWrite.read": ["self", "ttl", "timeout", "keep", "max_hold", "note", "on_lost"],
    "ReadWrite.write": ["self", "ttl", "timeout", "keep", "max_hold", "lock_delay", "note", "on_lost"],
    "Cell.get": ["self"],
    "Cell.set": ["self", "value", "version"],
    "Cell.update": ["self", "fn", "attempts"],
    "Election.lead": ["self", "timeout"],
    "Election.leader": ["self"],
    "Locker.break_": ["self", "name", "fence"],
    "Locker.init_fleet": ["self", "force"],
    "Locker.subscribe": ["self", "callback"],
    "Locker.close": ["self"],
}  # fmt: skip


@pytest.mark.parametrize("path", CONTRACT)
def test_names_and_parameters_are_the_contract(path: str) -> None:
    function: Any = quorumlock
    for part in path.split("."):
        function = getattr(function, part)
    assert list(inspect.signature(function).parameters) == CONTRACT[path]


def test_a_lease_tells_what_the_contract_names() -> None:
    told_by_lease = {name for name, member in public(Lease).items() if isinstance(member, property)}
    assert told_by_lease == {
        "condition",
        "name",
        "resource",
        "slot",
        "token",
        "fence",
        "fences",
        "ttl",
        "tally",
        "note",
        "held",
        "lost",
    }


class Good:
    """A front."""

    def acquire(self, timeout: float = 1.0) -> Good:
        """Waits."""
        return self


class Renamed:
    """A front."""

    async def obtain(self, timeout: float = 1.0) -> Good:
        """Waits."""
        raise NotImplementedError


class OtherDefault:
    """A front."""

    async def acquire(self, timeout: float = 2.0) -> Good:
        """Waits."""
        raise NotImplementedError


class OtherWords:
    """A front."""

    async def acquire(self, timeout: float = 1.0) -> Good:
        """Waits, perhaps."""
        raise NotImplementedError


class NotAwaited:
    """A front."""

    def acquire(self, timeout: float = 1.0) -> Good:
        """Waits."""
        raise NotImplementedError


@pytest.mark.parametrize("broken", [Renamed, OtherDefault, OtherWords, NotAwaited])
def test_the_check_sees_a_difference(broken: type) -> None:
    assert differences(Good, broken)
