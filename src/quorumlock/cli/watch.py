"""`quorumlock watch`: what happens to locks, as it happens."""

from __future__ import annotations

import argparse
import dataclasses
import json
import select
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .looking import add_looking_options, add_pattern, shown
from .output import EX_OK, complain, nobody_reads
from .parsing import interval

if TYPE_CHECKING:
    from ..journal import Entry

EPILOG = """\
examples:
  quorumlock watch                    everything, until ^C
  quorumlock watch 'orders:*' --json  a line of JSON for each event

It shows the journal, if clients keep one (`journal = 10000` in quorumlock.toml).
Without a journal it looks at all locks now and then, and says so: how a lease
ended, and what came and went between two looks, cannot be seen then.
"""
LOOKED_AT = 10_000
"""Locks at a time, where there is no journal."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_pattern(parser)
    parser.add_argument("--last", type=int, default=10, metavar="N", help="begin so many back (default: 10)")
    parser.add_argument(
        "--every", type=interval, default=0.5, metavar="S", help="how often to look, in seconds (default: 0.5)"
    )
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from .. import options
    from .settings import connect

    options.pattern(arguments.pattern)
    last = options.whole("--last", arguments.last, 0, 1000)
    try:
        with connect(arguments) as locks:
            for entry in _happening(locks, arguments.pattern, last, arguments.every):
                print(_line(entry) if not arguments.json else json.dumps(dataclasses.asdict(entry)), flush=True)
    except KeyboardInterrupt:
        pass  # that is how one stops watching
    except BrokenPipeError:
        nobody_reads()
    return EX_OK


def _happening(locks: Any, pattern: str, last: int, every: float) -> Iterator[Entry]:
    """What is in the journal, or can be seen; ends when nobody reads any more."""
    from ..errors import NoQuorum
    from .seeing import SEEN, Looks, matching

    wanted, looks = matching(pattern), Looks()
    page = locks.journal(limit=max(1, 10 * last))
    if not page.kept:
        complain(f"no client keeps a journal here; {SEEN}")
    entries: Iterable[Entry] = [entry for entry in page.entries if wanted(entry.name)][-last:] if last else ()
    told = ""
    while True:
        yield from entries
        try:
            kept, page = page.kept, locks.journal(page.cursor)
            if page.kept and not kept:
                complain("a client keeps a journal now")
            elif not page.kept:
                yield from looks.news(locks.survey(pattern, LOOKED_AT))
            entries, told = [entry for entry in page.entries if wanted(entry.name)], ""
        except NoQuorum as error:
            if not told:
                complain(f"{error}; going on")
            entries, told = (), str(error)
        if not entries:
            _pause(every)


def _pause(every: float) -> None:
    """Raises BrokenPipeError if nobody reads any more: where nothing happens, nothing would be written either."""
    reader = select.poll()
    try:
        reader.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        time.sleep(every)  # no file
        return
    if reader.poll(every * 1000):
        raise BrokenPipeError


def _line(entry: Entry) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(entry.at)) + f"{entry.at % 1:.3f}"[1:]
    fence = f"fence {entry.fence}" if entry.fence else ""
    parts = (f"{entry.what:<8}", entry.name, entry.who, fence, entry.detail)
    return "  ".join([at, *(shown(part) for part in parts if part)])
