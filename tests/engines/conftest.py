"""Servers that the tests of several files share."""

from .etcd_fixtures import etcd_server
from .sql_servers import poor, shared_place

__all__ = ["etcd_server", "poor", "shared_place"]
