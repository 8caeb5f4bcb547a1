"""Fixtures of live tests."""

from .fixtures import put_proxy, pytest_collection_modifyitems, pytest_configure

__all__ = ["put_proxy", "pytest_collection_modifyitems", "pytest_configure"]
