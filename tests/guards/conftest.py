"""Fixtures of the guards' tests, from the modules that make them."""

from __future__ import annotations

from .sql_fixtures import find_database, open_side  # noqa: F401
