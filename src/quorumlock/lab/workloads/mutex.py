"""One lock, which everybody wants."""

from __future__ import annotations

from .base import Worker


class Mutex(Worker):
    """Takes it, stays, gives it back; two workers of a client stand in one line."""

    each = 2
