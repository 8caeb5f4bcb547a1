"""For Lockers that cannot survey, tell their nodes or keep a journal yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeState:
    node: str
    state: str
    detail: str = ""
    role: str | None = None
    server: str | None = None
    version: str | None = None
    latency: float | None = None
    clock_offset: float | None = None
    quarantine: float = 0.0


@dataclass(frozen=True, slots=True)
class JournalPage:
    entries: tuple[Any, ...] = ()
    cursor: str = ""
    kept: bool = False


class Fallback:
    def __init__(self, locker: Any) -> None:
        self._locker = locker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locker, name)

    def survey(self, pattern: str = "*", limit: int = 1000) -> list[Any]:
        return [self._locker.inspect(name) for name in self._locker.list(pattern, limit)]

    def nodes(self, samples: int = 3) -> tuple[NodeState, ...]:
        said = self._locker.inspect("dashboard").nodes
        fine = ("free", "held", "shared", "closed")
        return tuple(
            NodeState(one.node, "ready" if one.says in fine else "down", "" if one.says in fine else one.says)
            for one in said
        )

    def journal(self, after: str | None = None, limit: int = 1000) -> JournalPage:
        return JournalPage()
