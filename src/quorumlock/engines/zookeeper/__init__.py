"""Locks kept by a ZooKeeper ensemble: the session holds the lease, and the order of transactions is the fence."""

from .engine import ZookeeperEngine

__all__ = ["ZookeeperEngine"]
