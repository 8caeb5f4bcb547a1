"""`quorumlock elect`: a command that runs wherever this candidate leads."""

from __future__ import annotations

import argparse

from . import run as running
from .output import EX_HELD, EX_LOST
from .parsing import add_fleet_options, seconds

EPILOG = """\
The command is started when this candidate is elected, and ended when it does
not lead any more; then it stands for election again. If the command ends by
itself, so does this, with its exit code.

example:
  quorumlock elect scheduler -- ./scheduler

exit codes: those of the command, and those of `quorumlock run` but 75 and 76
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.epilog = "quorumlock elect NAME [options] -- COMMAND [ARGUMENT ...]", EPILOG
    parser.add_argument("name", metavar="NAME", help="of the election")
    parser.set_defaults(
        command=[], shell=None, no_wait=False, timeout=None, conflict_exit_code=EX_HELD, skip_ok=False,
        fair=True, shared=False, slots=None, max_hold=None, at_least=0.0, elects=True,
    )  # fmt: skip
    parser.add_argument("-c", dest="shell", metavar="TEXT", help="run this with sh -c")
    parser.add_argument(
        "--ttl",
        type=seconds,
        metavar="S",
        help="how long one that dies still leads (default: 30, or what the engine allows)",
    )
    parser.add_argument("--note", metavar="TEXT", help="shown to whoever asks who leads")
    running.add_losing_options(parser)
    add_fleet_options(parser)


def run(arguments: argparse.Namespace) -> int:
    while True:
        code = running.run(arguments)
        if code != EX_LOST:
            return code
