"""The engine on etcd, by its v3 JSON gateway; see `engine.py` for what it promises."""

from .engine import EtcdEngine

__all__ = ["EtcdEngine"]
