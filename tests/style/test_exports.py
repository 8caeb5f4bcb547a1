"""The names that users import: a list that only changes on purpose."""

from __future__ import annotations

import subprocess
import sys

import pytest

import quorumlock
from quorumlock import errors

EXPORTED = [
    "AcquireTimeout",
    "AsyncCell",
    "AsyncElection",
    "AsyncLease",
    "AsyncLock",
    "AsyncLocker",
    "AsyncReadWrite",
    "Cell",
    "ConfigurationError",
    "Election",
    "EngineError",
    "EngineProtocolError",
    "EngineTimeout",
    "Exponential",
    "Holder",
    "Inspection",
    "Jitter",
    "Lease",
    "LeaseClosed",
    "LeaseError",
    "LeaseLost",
    "Limit",
    "Lock",
    "LockError",
    "LockHeld",
    "Locker",
    "LossReason",
    "NoQuorum",
    "NodeState",
    "NotAcquired",
    "ReadWrite",
    "StaleFence",
    "Tally",
    "Unsupported",
    "VersionConflict",
    "Vote",
    "connect",
    "connect_async",
]


def test_exactly_these_names_are_exported() -> None:
    assert quorumlock.__all__ == EXPORTED


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_name_can_be_imported(name: str) -> None:
    assert getattr(quorumlock, name) is not None
    assert name in dir(quorumlock)


def test_every_error_is_exported() -> None:
    assert set(errors.__all__) <= set(EXPORTED)
    for name in errors.__all__:
        assert getattr(quorumlock, name) is getattr(errors, name)
    classes = {
        name for name, one in vars(errors).items() if isinstance(one, type) and one.__module__ == errors.__name__
    }
    assert classes == set(errors.__all__), "the list of errors is complete"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Mutex'"):
        quorumlock.Mutex  # noqa: B018


def newly_imported(statement: str) -> set[str]:
    """The top-level modules that a statement brings into a fresh interpreter."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stdout.split()}


def foreign(modules: set[str]) -> set[str]:
    return modules - set(sys.stdlib_module_names) - {"quorumlock"}


def test_importing_the_package_imports_nothing_foreign_and_no_asyncio() -> None:
    modules = newly_imported("import quorumlock")
    assert "quorumlock" in modules
    assert foreign(modules) == set()
    assert not modules & {"asyncio", "socket", "ssl", "redis"}


def test_the_front_for_threads_does_without_asyncio_and_without_redis() -> None:
    modules = newly_imported("from quorumlock import Lease, Lock, Locker, NoQuorum, connect")
    assert foreign(modules) == set()
    assert "asyncio" not in modules


def test_everything_can_be_imported_without_anything_installed() -> None:
    modules = newly_imported("from quorumlock import *")
    assert foreign(modules) == set()


def test_the_check_sees_what_is_foreign() -> None:
    assert "redis" in foreign(newly_imported("import redis"))
    assert "asyncio" in newly_imported("import asyncio")
