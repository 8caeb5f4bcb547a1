"""Events, where operators look: `logging`, Prometheus and OpenTelemetry.

    from quorumlock.observing import export_metrics, log_events, trace_locks

    log_events(locks)         # nothing is logged unless you ask for it
    export_metrics(locks)     # pip install 'quorumlock[prometheus]'
    trace_locks(locks)        # pip install 'quorumlock[opentelemetry]'

Each returns a function that ends it. Nothing is imported that is not used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .logging import log_events
    from .opentelemetry import trace_locks
    from .prometheus import export_metrics

__all__ = ["export_metrics", "log_events", "trace_locks"]

_HOME = {"export_metrics": "prometheus", "log_events": "logging", "trace_locks": "opentelemetry"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
