"""`quorumlock init`: makes a new fleet ready."""

from __future__ import annotations

import argparse

from .output import EX_OK, EX_USAGE, complain
from .parsing import add_fleet_options, add_output_options

DESCRIPTION = """\
Makes the nodes of a new fleet ready at once. Without it they grant nothing for
one max_ttl, because a node that knows of no fleet may have lost its memory.
Once is enough: a node that restarts later looks after itself.
"""

EPILOG = """\
The nodes, --prefix, --max-ttl, --durable and --fleet are the fleet's terms:
every client must be given the same.

example:
  quorumlock init --max-ttl 30 \\
    --url redis://10.0.0.1 --url redis://10.0.0.2 --url redis://10.0.0.3

A URL on the command line can be seen by other users of this machine: put one
with a password into QUORUMLOCK_URL.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_fleet_options(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="start a fleet anew, with other terms; it waits until locks of the old one are over",
    )
    add_output_options(parser)


def run(arguments: argparse.Namespace) -> int:
    import quorumlock

    from .settings import found

    chosen = found(arguments)
    if "url" not in chosen.values:
        complain("say which nodes: --url, or QUORUMLOCK_URL. (The file of this machine needs no initialising)")
        return EX_USAGE
    with quorumlock.connect(chosen.values["url"], **chosen.options) as locks:
        wait = locks.init_fleet(force=arguments.force)
        terms = chosen.values.get("prefix", ""), chosen.values.get("max_ttl", 60.0)
        if arguments.json:
            from .looking import print_json

            print_json({"nodes": locks.engine.labels, "wait": wait, "prefix": terms[0], "max_ttl": terms[1]})
        else:
            _report(locks.engine.labels, wait, *terms)
    return EX_OK


def _report(nodes: tuple[str, ...], wait: float, prefix: str, max_ttl: float) -> None:
    what = "1 node" if len(nodes) == 1 else f"a fleet of {len(nodes)} nodes"
    under = f" under the prefix {prefix!r}" if prefix else ""
    print(f"initialised {what}{under}, max_ttl {max_ttl:g} s: {', '.join(nodes)}")
    if wait:
        print(f"it grants nothing for {wait:.1f} s: until then, locks of the old fleet may be alive")
    else:
        print("it grants locks from now on")
