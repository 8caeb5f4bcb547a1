"""How long a lease may be relied on."""

from __future__ import annotations


def allowance(ttl: float, drift: float) -> float:
    """What clocks may differ by during `ttl`: their rates, and 2 ms for the coarseness of expiry."""
    return ttl * drift + 0.002


def valid_until(started_at: float, ttl: float, drift: float) -> float:
    """The instant, on the client's clock, after which a lease asked for at `started_at` is over.

    Counted from before the request was sent: a node cannot have started its own count earlier.
    """
    return started_at + ttl - allowance(ttl, drift)
