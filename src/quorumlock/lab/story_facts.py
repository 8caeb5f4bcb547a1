"""What a run came to, in numbers, and whether that is what its story said would be seen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from .stage import Run
from .story import HARMS, SECONDS, Expectation


def measure(run: Run, fact: str, who: str = "") -> float:
    """One fact of a run; of one client, or of all."""
    record, until = run.record, run.story.until
    if fact == "overlap":
        return record.overlap
    if fact == "lost updates":
        return record.acknowledged - record.value
    if fact == "keys without ttl":
        return record.keys_without_ttl
    if fact == "orphaned":
        return record.orphaned
    if fact == "disordered fences":
        fences = [one.fence for one in record.holdings if one.fence]
        return sum(later <= earlier for earlier, later in pairwise(fences))
    if fact in ("wait", "answer after"):
        asked = [one for one in record.askings if who in ("", one.who) and (fact != "wait" or one.how != "refused")]
        return max(((until if one.ended_at is None else one.ended_at) - one.since for one in asked), default=0.0)
    return sum(number for (what, whose), number in record.counts.items() if what == fact and who in ("", whose))


def written(fact: str, value: float) -> str:
    """A measured value, for people."""
    if fact not in SECONDS:
        return f"{value:g}"
    return "none" if not value else f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.1f} s"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Was it seen?"""

    run: Run
    checked: tuple[tuple[Expectation, float], ...]
    """Each expectation, and what was measured."""
    harms: tuple[str, ...]
    """What happened that must not, anywhere."""

    @property
    def unmet(self) -> list[str]:
        """What was expected, and not seen."""
        wrong = [
            f"{one.text!r}, but it is {written(one.fact, seen)}" for one, seen in self.checked if not one.met(seen)
        ]
        telling = self.run.telling
        if not self.run.naive and self.harms:
            excused = ["overlap"] if telling.breaks else []
            wrong += [f"no {harm}" for harm in self.harms if harm not in excused]
        return wrong

    @property
    def shown(self) -> bool:
        """Did the run show what its story says?"""
        return not self.unmet

    @property
    def seen(self) -> list[str]:
        """What was measured, in words."""
        return [f"{one.fact}{f' of {one.who}' if one.who else ''}: {written(one.fact, value)}"
                for one, value in self.checked]  # fmt: skip

    @property
    def conclusion(self) -> str:
        return self.run.record.shown(self.run.telling.conclusion.format_map(_Facts(self.run)))


class _Facts(dict[str, str]):
    """Fills "{wait of B}" in with what was measured."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __missing__(self, key: str) -> str:
        fact, _, who = key.partition(" of ")
        return written(fact, measure(self.run, fact, who))


def judge(run: Run) -> Verdict:
    checked = tuple((one, measure(run, one.fact, one.who)) for one in run.telling.expect)
    harms = tuple(harm for harm in HARMS if measure(run, harm) > 0)
    return Verdict(run, checked, harms)
