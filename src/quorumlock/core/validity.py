"""How long a lease may be relied on."""

from __future__ import annotations


def valid_until(started_at: float, ttl: float, drift: float) -> float:
    """The instant, on the client's clock, after which a lease asked for at `started_at` is over.

    `ttl * drift + 2 ms` is what clocks may differ by meanwhile: their rates, and the coarseness of expiry.
    Counted from before the request was sent: a node cannot have started its own count earlier.
    """
    return started_at + ttl - (ttl * drift + 0.002)
