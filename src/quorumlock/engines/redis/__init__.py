"""One lock on N independent Redis or Valkey masters."""

from .engine import SCHEMES, RedisEngine

__all__ = ["SCHEMES", "RedisEngine"]
