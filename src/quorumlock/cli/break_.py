"""`quorumlock break`: forces a lock open."""

from __future__ import annotations

import argparse
import sys

from .looking import add_looking_options, as_json, described, print_json, shown, slots_of
from .output import EX_NOT_DONE, EX_OK, complain

EPILOG = """\
Whoever holds the lock learns that it is lost with the next renewal, and may be
at work until then: what it writes is refused only where a guard compares
fences. Better is to end the holder.

example:
  quorumlock break nightly-report --yes

exit codes: 0 it is broken, or was free; 1 it was left alone: nobody said yes
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("name", metavar="NAME", help="of the lock; name#0 for a slot of a semaphore")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from ..errors import LockHeld
    from .settings import connect

    with connect(arguments) as locks:
        found = locks.inspect(arguments.name)
        name = shown(found.name)
        if found.state == "free":
            slots = ", ".join(shown(one.name) for one in slots_of(locks, arguments.name))
            if arguments.json:
                print_json({"broken": False, "was": as_json(found)})
            else:
                print(f"{name} is free: nothing was broken{f'. Held are {slots}: say which' if slots else ''}")
            return EX_OK
        holders = ", ".join(described(one) for one in found.holders)
        if not arguments.yes:
            if not sys.stdin.isatty():
                complain(f"{name} is {found.state} ({holders}): say --yes to break it without being asked")
                return EX_NOT_DONE
            if input(f"{name} is {found.state} ({holders}). Break it? [y/N] ").strip().lower() not in ("y", "yes"):
                return EX_NOT_DONE
        try:
            locks.break_(arguments.name, fence=None if arguments.yes else found.fence)
        except LockHeld:
            complain(f"{name} has changed hands meanwhile: it was left alone")
            return EX_NOT_DONE
    if arguments.json:
        print_json({"broken": True, "was": as_json(found)})
    else:
        print(f"broke {name}, which was {found.state}" + (f" by {holders}" if holders else ""))
    return EX_OK
