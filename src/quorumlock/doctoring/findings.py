"""What a doctor says: a finding, how bad it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

OK, UNSEEN, WARNING, ERROR = "ok", "unseen", "warning", "error"
SEVERITIES = (OK, UNSEEN, WARNING, ERROR)

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    severity: str
    """ok, unseen (nobody could look at it), warning or error."""
    node: str | None
    """None: it is about the fleet."""
    says: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is not as it should be."""

    severity: str
    node: str | None
    says: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Check(Generic[Facts]):
    """One question, asked of facts that were gathered before."""

    name: str
    judge: Callable[[Facts], Iterable[Trouble]]
    fine: str
    """What is said where there is no trouble."""
    sees: Callable[[Facts], Sequence[bool]] = lambda _: ()
    """For each node: did it show what is judged? What nobody could look at is not well."""

    def findings(self, facts: Facts) -> Iterator[Finding]:
        troubles = [Finding(self.name, one.severity, one.node, one.says, one.remedy) for one in self.judge(facts)]
        yield from troubles or [self._well(self.sees(facts))]

    def _well(self, seen: Sequence[bool]) -> Finding:
        if all(seen):
            return Finding(self.name, OK, None, self.fine)
        if any(seen):
            return Finding(self.name, OK, None, f"{self.fine} (seen on {sum(seen)} of {len(seen)} nodes)")
        return Finding(self.name, UNSEEN, None, "no node let us look at it")


def worst(findings: Sequence[Finding]) -> str:
    return max((one.severity for one in findings), key=SEVERITIES.index, default=OK)
