"""`quorumlock wait`: until a lock is free, without taking it for more than a moment."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .looking import add_looking_options, busy_with, print_json
from .output import EX_HELD, EX_OK, complain
from .parsing import seconds, slots

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
    parser.add_argument("--slots", type=slots, metavar="N", help="until one of N slots is free (`run --slots N`)")
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from ..errors import AcquireTimeout, LockHeld
    from .settings import connect

    began = time.monotonic()
    options: dict[str, Any] = {"timeout": arguments.timeout, "note": "quorumlock wait"}
    with connect(arguments) as locks:
        slots = arguments.slots
        lock = locks.semaphore(arguments.name, slots, **options) if slots else locks.lock(arguments.name, **options)
        try:
            with lock:
                waited = time.monotonic() - began
        except (AcquireTimeout, LockHeld) as held:
            complain(busy_with(held, locks, arguments.name, slots))
            if arguments.json:
                print_json({"name": arguments.name, "free": False, "waited": round(time.monotonic() - began, 3)})
            return EX_HELD
    if arguments.json:
        print_json({"name": arguments.name, "free": True, "waited": round(waited, 3)})
    return EX_OK
