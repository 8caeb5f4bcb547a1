"""What the command line of every command shares."""

from __future__ import annotations

import argparse
import os

from .output import EX_USAGE, complain

TYPE_CHECKING = False  # as in typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """argparse, but with the exit code that means usage, and without passwords in what it says."""

    def __init__(self, command: str | None = None, does: str = "", **options: object) -> None:
        super().__init__(
            prog=str(options.get("prog") or (f"quorumlock {command}" if command else "quorumlock")),
            description=f"{does[0].upper()}{does[1:].rstrip('.')}." if does else None,
            formatter_class=_formatter,
            allow_abbrev=False,
            add_help=bool(options.get("add_help", True)),
        )

    def error(self, message: str) -> NoReturn:
        complain(f"{message} (see {self.prog} --help)")
        self.exit(EX_USAGE)


def _formatter(prog: str) -> argparse.HelpFormatter:
    """As wide as the terminal. argparse makes one for every option, and would import shutil to know that."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        columns = 80
    return argparse.RawDescriptionHelpFormatter(prog, width=max(columns, 40) - 2)


def add_verbose(parser: argparse.ArgumentParser, does: str = "") -> None:
    """Every command has it: without it an error is a line or two."""
    parser.add_argument("-v", "--verbose", action="count", default=0, help=f"{does}-vv: with tracebacks")


def add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")
    add_verbose(parser)


def add_fleet_options(parser: argparse.ArgumentParser) -> None:
    """Which nodes, and the terms that every client of theirs must be given alike."""
    fleet = parser.add_argument_group("fleet", "as in quorumlock.toml, or QUORUMLOCK_URL; see `config show`")
    fleet.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="a node, or several separated by commas; may be repeated",
    )
    fleet.add_argument("--prefix", metavar="TEXT", help="what is put in front of every key (default: nothing)")
    fleet.add_argument(
        "--max-ttl",
        type=float,
        metavar="SECONDS",
        help="the longest ttl, and how long a node that may have forgotten grants nothing (default: 60)",
    )
    fleet.add_argument(
        "--durable", action="store_const", const=True, help="the nodes keep every write (appendfsync always)"
    )
    fleet.add_argument("--fleet", metavar="NAME", help="a name, where clients spell the addresses differently")
    fleet.add_argument("--config", metavar="FILE", help="instead of the quorumlock.toml that is found")


def number(least: float, most: float, what: str) -> Callable[[str], float]:
    """Reads a number, or says which are meant."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return read


def whole(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number, or says which are meant."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} to {most}")
        return int(text)

    return read


seconds = number(0, 1e9, "a number of seconds")
slots = whole(1, 1000)
"""As many as SLOTS_MOST of core/family.py, which takes long to import."""
interval = number(0.1, 3600, "a number of seconds, from 0.1 to 3600")
