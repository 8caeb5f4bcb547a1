"""`quorumlock top`: which locks are held, by whom, and who waits, on a screen that changes."""

from __future__ import annotations

import argparse
import os
import sys

from .looking import add_pattern
from .output import EX_OK, EX_USAGE, complain
from .parsing import add_fleet_options, add_verbose, interval, whole

EPILOG = """\
examples:
  quorumlock top
  quorumlock top 'orders:*' --every 5

q quits; arrows and space move; s sorts by name, by how long it is held, by who
waits. For programs there are `quorumlock ls --json` and `quorumlock watch --json`.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_pattern(parser)
    parser.add_argument(
        "--every", type=interval, default=1.0, metavar="S", help="how often to look, in seconds (default: 1)"
    )
    parser.add_argument(
        "--limit", type=whole(1, 100_000), default=5000, metavar="N", help="no more than that (default: 5000)"
    )
    add_verbose(parser)
    add_fleet_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if not sys.stdout.isatty() or not sys.stdin.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        complain("top needs a terminal; `quorumlock ls` shows the same once, and `quorumlock watch` what happens")
        return EX_USAGE
    try:
        import rich  # noqa: F401 - is it there?
    except ImportError:
        complain("top needs rich: pip install 'quorumlock[cli]'; `quorumlock ls` shows the same once")
        return EX_USAGE
    from .. import options
    from .settings import connect
    from .top_screen import Top

    options.pattern(arguments.pattern)
    with connect(arguments) as locks:
        try:
            Top(locks, arguments.pattern, arguments.limit).run(arguments.every)
        except KeyboardInterrupt:
            pass  # that is another way to stop
    return EX_OK
