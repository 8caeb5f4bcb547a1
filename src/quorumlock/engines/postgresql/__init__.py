"""Locks in a PostgreSQL database."""

from .engine import PostgresqlEngine

__all__ = ["PostgresqlEngine"]
