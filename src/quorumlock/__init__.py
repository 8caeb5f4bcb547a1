"""A distributed lock manager: one lock kept by N independent nodes, with fencing tokens.

import quorumlock

locks = quorumlock.connect("redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3")
with locks.lock("orders:42", ttl=10) as lease:
    ...  # lease.fence orders the holders; lease.check() tells whether it is still ours
"""

from __future__ import annotations

from .errors import (
    AcquireTimeout,
    ConfigurationError,
    EngineError,
    EngineProtocolError,
    EngineTimeout,
    LeaseClosed,
    LeaseError,
    LeaseLost,
    LockError,
    LockHeld,
    LossReason,
    NoQuorum,
    NotAcquired,
    StaleFence,
    Unsupported,
    VersionConflict,
)

TYPE_CHECKING = False  # as in typing, which would be half of what importing this package costs
if TYPE_CHECKING:
    from typing import Any

    from .aio.cell import AsyncCell
    from .aio.family import AsyncElection, AsyncReadWrite
    from .aio.lease import AsyncLease
    from .aio.lock import AsyncLock
    from .aio.locker import AsyncLocker
    from .connecting import connect, connect_async
    from .core.votes import Tally, Vote
    from .inspecting import Holder, Inspection, NodeState
    from .retry import Exponential, Jitter, Limit
    from .sync.cell import Cell
    from .sync.family import Election, ReadWrite
    from .sync.lease import Lease
    from .sync.lock import Lock
    from .sync.locker import Locker

__version__ = "0.1.0"

__all__ = [
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

# Imported when first used: a program that only catches errors, or only uses threads, pays for nothing else.
_LATER = {
    "AsyncCell": ".aio.cell",
    "AsyncElection": ".aio.family",
    "AsyncLease": ".aio.lease",
    "AsyncLock": ".aio.lock",
    "AsyncLocker": ".aio.locker",
    "AsyncReadWrite": ".aio.family",
    "Cell": ".sync.cell",
    "Election": ".sync.family",
    "Exponential": ".retry",
    "Holder": ".inspecting",
    "Inspection": ".inspecting",
    "Jitter": ".retry",
    "Lease": ".sync.lease",
    "Limit": ".retry",
    "Lock": ".sync.lock",
    "Locker": ".sync.locker",
    "NodeState": ".inspecting",
    "ReadWrite": ".sync.family",
    "Tally": ".core.votes",
    "Vote": ".core.votes",
    "connect": ".connecting",
    "connect_async": ".connecting",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_LATER[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
