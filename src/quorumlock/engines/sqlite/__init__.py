"""The locks of one machine, in one SQLite file: nothing to install, nothing to start."""

from .engine import SqliteEngine

__all__ = ["SqliteEngine"]
