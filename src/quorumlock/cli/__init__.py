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
