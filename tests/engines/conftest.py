"""Servers that the tests of several files share."""

from .sql_servers import poor, shared_place

__all__ = ["poor", "shared_place"]
