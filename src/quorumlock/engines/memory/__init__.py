"""Nodes without a server: what simulations run on, and what `memory://` leads to."""

from .engine import MemoryEngine

__all__ = ["MemoryEngine"]
