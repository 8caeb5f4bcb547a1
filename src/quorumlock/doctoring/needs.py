"""What a user of the servers must be allowed to do, derived from what the library sends."""

from __future__ import annotations

import re

from ..engines.redis import scripts
from ..engines.redis.scripts import RELEASE

OUTSIDE = ("eval", "evalsha", "script|load", "client|info", "client|kill", "subscribe", "ping")
"""What is sent as it is: to run scripts, to end connections that owe an answer, to wait without polling."""
LOOKING = ("config|get", "command|info")
"""What the doctor would like, and locks do without."""

Words = tuple[str | int, ...]


def needed() -> tuple[str, ...]:
    """In the spelling of an ACL. Commands in a script need the same rights as those that are sent."""
    found = re.findall(r"\bredis\.p?call\(\s*'([A-Z]+)'", "\n".join(scripts.SOURCES.values()))
    return (*OUTSIDE, *sorted({command.lower() for command in found}))


def probes(prefix: str, channel: str) -> dict[str, Words]:
    """For each of them a call that changes nothing: on a key that nobody has, or a channel that nobody hears."""
    key = f"{prefix}ql:doctor:nobody"
    return {
        "eval": ("EVAL", "return 1", 0),
        "evalsha": ("EVALSHA", "0" * 40, 0),
        "script|load": ("SCRIPT", "LOAD", RELEASE.source),  # which every client loads
        "client|info": ("CLIENT", "INFO"),
        "client|kill": ("CLIENT", "KILL", "ID", 2**62, "ADDR", "0.0.0.0:1"),
        "ping": ("PING",),
        "time": ("TIME",),
        "info": ("INFO", "replication"),
        "get": ("GET", key),
        "mget": ("MGET", key, key),
        "exists": ("EXISTS", key),
        "pttl": ("PTTL", key),
        "scan": ("SCAN", 0, "MATCH", key, "COUNT", 1),
        "set": ("SET", key, "", "XX", "PX", 1),
        "del": ("DEL", key),
        "pexpire": ("PEXPIRE", key, 1),
        "publish": ("PUBLISH", f"{channel}nobody", ""),
        "zadd": ("ZADD", key, "XX", 0, ""),
        "zcount": ("ZCOUNT", key, 0, 0),
        "zrange": ("ZRANGE", key, 0, 0),
        "zrangebyscore": ("ZRANGEBYSCORE", key, 0, 0),
        "zrem": ("ZREM", key, ""),
        "zremrangebyscore": ("ZREMRANGEBYSCORE", key, 0, 0),
        "zscore": ("ZSCORE", key, ""),
        "xadd": ("XADD", key, "NOMKSTREAM", "*", "a", ""),
        "xlen": ("XLEN", key),
        "xrange": ("XRANGE", key, "-", "+", "COUNT", 1),
        "xrevrange": ("XREVRANGE", key, "+", "-", "COUNT", 1),
        "subscribe": ("SUBSCRIBE", f"{channel}nobody"),  # the last: the connection is good for nothing else then
    }


def setuser(
    user: str, prefix: str, channel: str, *, without: frozenset[str] = frozenset(), select: bool = False
) -> str:
    """The command that makes such a user. One word that a server does not know, and it would refuse all of it."""
    rights = [*needed(), *(["select"] if select else [])]
    # No space is allowed in a pattern, but ? stands for any character.
    words = ["on", ">PASSWORD", f"~{prefix}*".replace(" ", "?"), "resetchannels", f"&{channel}*".replace(" ", "?")]
    words += [f"+{one}" for one in rights if one.split("|")[0] not in without]
    return " ".join(_quoted(word) for word in ("ACL", "SETUSER", user, "reset", *words))


def _quoted(word: str) -> str:
    """As redis-cli and files of users read it."""
    if re.fullmatch(r"[^\s\"'\\]+", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
