"""Who watches a town: one promise per file."""

from __future__ import annotations

from .base import Checker, Violation
from .deadline import Deadline
from .exclusion import Exclusion
from .fences import Fences
from .leaks import Leaks
from .lifetimes import Lifetimes
from .progress import Progress
from .updates import Updates
from .waiting import Waiting

__all__ = ["CHECKERS", "Checker", "Violation"]

CHECKERS: dict[str, type[Checker]] = {
    kind.name: kind for kind in (Exclusion, Fences, Updates, Lifetimes, Leaks, Deadline, Waiting, Progress)
}
