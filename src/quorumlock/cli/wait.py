"""`quorumlock wait`: until a lock is free, without taking it for more than a moment."""

from __future__ import annotations

import argparse
import time

from .looking import add_looking_options, complain_of, print_json
from .output import EX_HELD, EX_OK
from .parsing import seconds

EPILOG = """\
It stands in the queue like everybody else, has the lock for a moment when it is
its turn, and gives it back: by the time you know, somebody else may have it.

example:
  quorumlock wait migration --timeout 300 && ./start-server

exit codes: 0 it was free, 75 it was not within the timeout
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("name", metavar="NAME", help="of the lock")
    parser.add_argument("-w", "--timeout", type=seconds, metavar="S", help="give up after so many seconds")
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from ..errors import AcquireTimeout, LockHeld
    from .settings import connect

    began = time.monotonic()
    with connect(arguments) as locks:
        try:
            with locks.lock(arguments.name, timeout=arguments.timeout, note="quorumlock wait"):
                waited = time.monotonic() - began
        except (AcquireTimeout, LockHeld) as held:
            complain_of(held, locks, arguments.name)
            return EX_HELD
    if arguments.json:
        print_json({"name": arguments.name, "free": True, "waited": round(waited, 3)})
    return EX_OK
