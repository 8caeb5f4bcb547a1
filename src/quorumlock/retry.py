"""How long to stay away before asking again: small values that compose.

The classic `retry_count=3, retry_delay=0.2` is `Limit(Jitter(0.2), 3)`. Every strategy is random: contenders
that split the vote must not meet again at the same instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .options import real, strategy, whole

__all__ = ["Exponential", "Jitter", "Limit", "Retry"]


class Retry(Protocol):
    """Anything with `delay`. `attempt` counts from 1; None means: give up."""

    def delay(self, attempt: int, random: Callable[[], float]) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Jitter:
    """A delay drawn evenly between a tenth of `most` and `most` seconds."""

    most: float

    def __post_init__(self) -> None:
        real("most", self.most, 0.001, 3600.0)

    def delay(self, attempt: int, random: Callable[[], float]) -> float | None:
        return self.most * (0.1 + 0.9 * random())


DEFAULT_RETRY = Jitter(0.2)
"""What `connect` does unless told; an engine that knows better may do better."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """A jittered delay that doubles from `first` up to `most` seconds."""

    first: float = 0.02
    most: float = 2.0

    def __post_init__(self) -> None:
        real("first", self.first, 0.001, 3600.0)
        real("most", self.most, self.first, 3600.0)

    def delay(self, attempt: int, random: Callable[[], float]) -> float | None:
        # Past 2**64 the product is far beyond any `most`; the cap keeps a float from overflowing.
        return min(self.most, self.first * 2.0 ** min(attempt - 1, 64)) * (0.5 + 0.5 * random())


@dataclass(frozen=True, slots=True)
class Limit:
    """`inner`, but at most `retries` times."""

    inner: Retry
    retries: int

    def __post_init__(self) -> None:
        strategy("inner", self.inner)
        whole("retries", self.retries, 0, 1_000_000_000)

    def delay(self, attempt: int, random: Callable[[], float]) -> float | None:
        return None if attempt > self.retries else self.inner.delay(attempt, random)
