"""What came of one round of a story: who held the lock from when to when, and what should not have been."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.exclusion import Claim, Violations, violations


class Void(Exception):
    """The scene could not be set: a busy machine was too slow for the danger to be real. Says nothing, and is
    played again."""


@dataclass(frozen=True)
class Span:
    """A lease was valid from when it was got until it was given back, lost or over, by the boot clock."""

    who: str
    fence: int
    at: float
    until: float


@dataclass
class Outcome:
    """One round. What is wrong is told in sentences; an overlap is wrong unless quarantine is off."""

    story: str
    seed: str
    spans: list[Span] = field(default_factory=list)
    refusals: int = 0
    wrong: list[str] = field(default_factory=list)
    void: str = ""
    """Why the round says nothing."""
    seconds: float = 0.0

    @property
    def overlaps(self) -> list[str]:
        return self._compared().overlaps

    @property
    def disorders(self) -> list[str]:
        """Fences that did not grow from one holder to the next."""
        return self._compared().disorders

    @property
    def faults(self) -> list[str]:
        """Everything that must not be, with what is needed to play the round again."""
        found = [*self.overlaps, *self.disorders, *self.wrong]
        return [f"{self.story} (seed {self.seed}): {sentence}" for sentence in found]

    def _compared(self) -> Violations:
        return violations(Claim(self.story, span.fence, span.at, span.until) for span in self.spans)
