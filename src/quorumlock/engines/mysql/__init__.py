"""Locks in a MySQL or MariaDB database."""

from .engine import MysqlEngine

__all__ = ["MysqlEngine"]
