"""`quorumlock init`: makes a new fleet ready."""

from __future__ import annotations

import argparse
import os

import quorumlock

from .output import EX_OK, EX_UNAVAILABLE, EX_USAGE, complain


def init(arguments: argparse.Namespace) -> int:
    urls: list[str] | None = arguments.url
    if not urls and not os.environ.get("QUORUMLOCK_URL"):
        complain("say which nodes: --url, or QUORUMLOCK_URL. (The file of this machine needs no initialising)")
        return EX_USAGE
    with quorumlock.connect(
        urls[0] if urls and len(urls) == 1 else urls,
        prefix=arguments.prefix,
        max_ttl=arguments.max_ttl,
        fence_ttl=max(86400.0, 4 * arguments.max_ttl),
        durable=arguments.durable,
        fleet=arguments.fleet,
    ) as locks:
        try:
            wait = locks.init_fleet(force=arguments.force)
        except (quorumlock.ConfigurationError, quorumlock.NoQuorum) as error:
            complain(str(error).replace("init_fleet(force=True)", "init --force"))
            return EX_UNAVAILABLE if isinstance(error, quorumlock.NoQuorum) else EX_USAGE
        _report(locks.engine.labels, wait, arguments)
    return EX_OK


def _report(nodes: tuple[str, ...], wait: float, arguments: argparse.Namespace) -> None:
    what = "1 node" if len(nodes) == 1 else f"a fleet of {len(nodes)} nodes"
    under = f" under the prefix {arguments.prefix!r}" if arguments.prefix else ""
    print(f"initialised {what}{under}, max_ttl {arguments.max_ttl:g} s: {', '.join(nodes)}")
    if wait:
        print(f"it grants nothing for {wait:.1f} s: until then, locks of the old fleet may be alive")
    else:
        print("it grants locks from now on")
