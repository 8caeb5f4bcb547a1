"""How often to ask a file: nobody announces that a lock in it is free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...options import real


@dataclass(frozen=True, slots=True)
class Polling:
    """A jittered delay that grows by half from `first` up to `most` seconds.

    To ask costs some microseconds and disturbs nobody, so a lock that is held briefly is asked for at a brisk
    pace; one that is held for long is not worth a busy processor.
    """

    first: float = 0.001
    most: float = 0.05

    def __post_init__(self) -> None:
        real("first", self.first, 0.0001, 3600.0)
        real("most", self.most, self.first, 3600.0)

    def delay(self, attempt: int, random: Callable[[], float]) -> float | None:
        # Past 1.5**64 the product is far beyond any `most`; the cap keeps a float from overflowing.
        return min(self.most, self.first * 1.5 ** min(attempt - 1, 64)) * (0.5 + 0.5 * random())
