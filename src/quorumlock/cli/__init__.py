"""The command `quorumlock`.

It starts fast: an engine, and with it redis-py, is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from .. import __version__
from ..errors import EngineError, LockError, NoQuorum
from .output import EX_INTERRUPTED, EX_OK, EX_UNAVAILABLE, EX_USAGE, complain

__all__ = ["main"]

EPILOG = """\
examples:
  quorumlock init --url redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  QUORUMLOCK_URL=rediss://:password@10.0.0.1 quorumlock init
  quorumlock demo
  quorumlock lab run pause-while-holding

exit codes:
  0   done
  64  a mistake in the call or in the deployment
  69  nodes that do not answer
"""

INIT = """\
Makes the nodes of a new fleet ready at once. Without it they grant nothing for
one max_ttl, because a node that knows of no fleet may have lost its memory.
Once is enough: a node that restarts later looks after itself.
"""

INIT_EPILOG = """\
The nodes, --prefix, --max-ttl, --durable and --fleet are the fleet's terms:
every client must be given the same.

example:
  quorumlock init --max-ttl 30 \\
    --url redis://10.0.0.1 --url redis://10.0.0.2 --url redis://10.0.0.3

A URL on the command line can be seen by other users of this machine: put one
with a password into QUORUMLOCK_URL.
"""


LAB = """\
Stories of locks that fail, replayed in a simulator: with quorumlock, and with
the design that each story warns about. Nothing is installed or connected to.
"""

LAB_EPILOG = """\
actions:
  list             all stories
  show NAME        one story: who does what, and what must be seen
  run NAME         replay it with quorumlock
      --naive      ... with the design it warns about
      --svg FILE   draw it as a timeline
      --html FILE  one page with both runs, told and drawn

NAME may also be a file of your own: ./mine.toml

exit codes of run:
  0   the lock holds
  1   the naive design fails, as the story says
  2   there is no such story, or its file is malformed
  3   the run did not show what the story says
"""


class Parser(argparse.ArgumentParser):
    """argparse, but with the exit code that means usage, and without passwords in what it says."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message} (see {self.prog} --help)")
        self.exit(EX_USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives its exit code."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as done:  # argparse ends --help, --version and errors in this way
        return int(done.code or EX_OK)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (NoQuorum, EngineError) as error:
        complain(str(error))
        return EX_UNAVAILABLE
    except LockError as error:
        complain(str(error))
        return EX_USAGE
    except KeyboardInterrupt:
        return EX_INTERRUPTED


def _parser() -> Parser:
    parser = Parser(
        prog="quorumlock",
        description="A distributed lock manager: one lock kept by N independent nodes, with fencing tokens.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"quorumlock {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_init(commands)
    _add_demo(commands)
    _add_lab(commands)
    return parser


def _add_init(commands: argparse._SubParsersAction[Parser]) -> None:
    init = commands.add_parser(
        "init",
        help="make a new fleet ready at once",
        description=INIT,
        epilog=INIT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    init.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="a node, or several separated by commas; may be repeated (default: QUORUMLOCK_URL)",
    )
    init.add_argument("--prefix", default="", help="what is put in front of every key (default: nothing)")
    init.add_argument(
        "--max-ttl",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="the longest ttl, and how long a node that may have forgotten grants nothing (default: 60)",
    )
    init.add_argument("--durable", action="store_true", help="the nodes keep every write (appendfsync always)")
    init.add_argument("--fleet", metavar="NAME", help="a name, where clients spell the addresses differently")
    init.add_argument(
        "--force",
        action="store_true",
        help="start a fleet anew, with other terms; it waits until locks of the old one are over",
    )
    init.set_defaults(run=_init)


def _add_demo(commands: argparse._SubParsersAction[Parser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="see a lock at work, and things that go wrong",
        description="Starts five Valkey nodes on this machine and three workers that share one lock; "
        "kills two nodes, and stops a worker in mid-work; shows that nothing is lost.",
        allow_abbrev=False,
    )
    demo.add_argument("--plain", action="store_true", help="lines of text, also on a terminal")
    demo.add_argument(
        "--seconds", type=_seconds, default=3.0, metavar="SECONDS", help="how long to watch each part (default: 3)"
    )
    demo.set_defaults(run=_demo)


def _add_lab(commands: argparse._SubParsersAction[Parser]) -> None:
    lab = commands.add_parser(
        "lab",
        help="stories of locks that fail, replayed and drawn",
        description=LAB,
        epilog=LAB_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = lab.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    actions.add_parser("list", help="all stories", allow_abbrev=False)
    show = actions.add_parser("show", help="one story", allow_abbrev=False)
    run = actions.add_parser("run", help="replay a story", allow_abbrev=False)
    for one in (show, run):
        one.add_argument("name", metavar="NAME", help="of a story, or a file of your own (./mine.toml)")
    run.add_argument("--naive", action="store_true", help="with the design that the story warns about")
    run.add_argument("--svg", metavar="FILE", help="draw it as a timeline")
    run.add_argument("--html", metavar="FILE", help="one page with both runs, told and drawn")
    lab.set_defaults(run=_lab)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise ValueError(text)
    return value


def _init(arguments: argparse.Namespace) -> int:
    from .init import init

    return init(arguments)


def _demo(arguments: argparse.Namespace) -> int:
    from ..lab.demo import demo

    return demo(plain=arguments.plain, seconds=arguments.seconds)


def _lab(arguments: argparse.Namespace) -> int:
    from .lab import lab

    return lab(arguments)
