"""What happened in a simulated town, line by line; the same seed writes the same lines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Log:
    """Lines of text, each with the time of the world and who it is about."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.lines: list[str] = []
        self._clock = clock

    def add(self, who: str, what: str) -> None:
        self.lines.append(f"{self._clock():.6f} {who} {what}")

    def digest(self) -> str:
        """The same for two runs only if every line is."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
