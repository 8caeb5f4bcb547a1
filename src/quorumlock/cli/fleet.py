"""`quorumlock fleet`: a fleet of real servers on this machine, for development."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .looking import print_json, shown, table
from .output import EX_OK, EX_UNAVAILABLE, EX_USAGE, complain
from .parsing import add_output_options

if TYPE_CHECKING:
    from ..lab.standing import Fleet

EPILOG = """\
examples:
  eval "$(quorumlock fleet up 5)"   start five, and use them from this shell
  quorumlock fleet status
  quorumlock fleet down

They listen on loopback, without a password, on ports that were free: for
development, not for production. They run until `fleet down`, or until the
machine is shut down. Only what `fleet up` has started is ever ended.

exit codes:
  0   done; of status: all of them answer
  64  a mistake in the call, or no server program on this machine
  69  of status: not all of them answer
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("what", choices=["up", "down", "status"], metavar="up|down|status")
    parser.add_argument("nodes", nargs="?", type=int, metavar="N", help="of up: how many servers (default: 3)")
    parser.add_argument(
        "--dir", metavar="DIR", help="where they live (default: in the state directory of this user)"
    )
    parser.add_argument(
        "--persist",
        action="store_true",
        help="of up: they keep what they know, and come back with it at the next up",
    )
    add_output_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from ..lab import standing

    folder = Path(arguments.dir).absolute() if arguments.dir else standing.default_folder()
    if arguments.what != "up" and (arguments.nodes is not None or arguments.persist):
        complain(f"`fleet {arguments.what}` takes neither N nor --persist")
        return EX_USAGE
    if arguments.what == "up":
        return _up(folder, arguments)
    return _down(folder, arguments) if arguments.what == "down" else _status(folder, arguments)


def _up(folder: Path, arguments: argparse.Namespace) -> int:
    """On stdout there is only what a shell can evaluate."""
    from ..lab import standing

    fleet, new = standing.up(folder, arguments.nodes, arguments.persist)
    if arguments.json:
        print_json({"url": fleet.url, "started": new, **_as_json(fleet, folder, _states(fleet))})
        return EX_OK
    what = f"{_of(fleet)} is up{'' if new else ' already'}, in {shown(str(folder))}"
    complain(f"{what}{', and persists' if fleet.persist else ''}; `quorumlock fleet down` ends it")
    if wait := _wait(fleet):
        complain(
            f"it grants nothing for {wait:.0f} s from its first use: whoever restarts may have forgotten locks"
        )
    print(f"export QUORUMLOCK_URL={fleet.url}")
    return EX_OK


def _wait(fleet: Fleet) -> float:
    """How long it takes until a majority of a fleet that came back is out of quarantine."""
    import quorumlock

    with quorumlock.connect(fleet.url) as locks:
        return sorted(node.quarantine for node in locks.nodes(1))[len(fleet.members) // 2]


def _down(folder: Path, arguments: argparse.Namespace) -> int:
    from ..lab import standing

    fleet, gone = standing.down(folder)
    if arguments.json:
        print_json(
            {"ended": 0 if fleet is None else len(fleet.members) - len(gone), "gone": [one.pid for one in gone]}
        )
    elif fleet is None:
        print(f"there is no fleet in {shown(str(folder))}")
    else:
        print(f"ended {_of(fleet)}")
        for member in gone:
            left = f": process {member.pid}, if there is one, was left alone" if member.pid else ""
            print(f"127.0.0.1:{member.port} was not running{left}")
        if fleet.persist:
            print(f"what they knew is kept in {shown(str(folder))}, for the next `quorumlock fleet up`")
    return EX_OK


def _status(folder: Path, arguments: argparse.Namespace) -> int:
    from ..lab import standing

    fleet = standing.read(folder)
    if fleet is None:
        print_json(None) if arguments.json else print(f"there is no fleet in {shown(str(folder))}")
        return EX_UNAVAILABLE
    found = _states(fleet)
    if arguments.json:
        print_json({"url": fleet.url, **_as_json(fleet, folder, found)})
    else:
        rows = [(f"127.0.0.1:{one['port']}", one["state"], str(one["pid"])) for one in found]
        print(table(("NODE", "STATE", "PID"), rows))
        print(f"export QUORUMLOCK_URL={fleet.url}")
    return EX_OK if all(one["state"] == "up" for one in found) else EX_UNAVAILABLE


def _of(fleet: Fleet) -> str:
    many = len(fleet.members)
    return f"a fleet of {many} {fleet.kind.capitalize()} {'server' if many == 1 else 'servers'}"


def _as_json(fleet: Fleet, folder: Path, states: list[dict[str, Any]]) -> dict[str, Any]:
    return {"dir": str(folder), "kind": fleet.kind, "persist": fleet.persist, "nodes": states}


def _states(fleet: Fleet) -> list[dict[str, Any]]:
    def state(alive: bool, answers: bool) -> str:
        return "ended" if not alive else ("up" if answers else "silent")

    return [
        {"port": one.port, "pid": one.pid, "state": state(one.alive, one.alive and one.answers)}
        for one in fleet.members
    ]
