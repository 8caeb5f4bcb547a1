"""`quorumlock demo`: a lock at work, and things that go wrong."""

from __future__ import annotations

import argparse

from .parsing import add_verbose, interval

DESCRIPTION = """\
Starts five Valkey nodes on this machine and three workers that share one lock;
kills two nodes, and stops a worker in mid-work; shows that nothing is lost.
"""

EPILOG = """\
examples:
  quorumlock demo
  quorumlock demo --plain --seconds 1
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("--plain", action="store_true", help="lines of text, also on a terminal")
    parser.add_argument(
        "--seconds", type=interval, default=3.0, metavar="SECONDS", help="how long to watch each part (default: 3)"
    )
    add_verbose(parser)


def run(arguments: argparse.Namespace) -> int:
    from ..lab.demo import demo

    return demo(plain=arguments.plain, seconds=arguments.seconds)
