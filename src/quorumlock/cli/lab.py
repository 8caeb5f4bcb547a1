"""`quorumlock lab`: stories of locks that fail, replayed in the simulator."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .output import EX_OK, complain, nobody_reads
from .parsing import Parser, add_verbose

if TYPE_CHECKING:
    from ..lab.story import Story

EX_FAILS = 1
"""A naive design failed, as its story says."""
EX_BAD_INPUT = 2
EX_NOT_AS_TOLD = 3
"""The run did not show what its story says."""


DESCRIPTION = """\
Stories of locks that fail, replayed in a simulator: with quorumlock, and with
the design that each story warns about. Nothing is installed or connected to.
"""

EPILOG = """\
actions:
  list             all stories
  show NAME        one story: who does what, and what must be seen
  run NAME         replay it with quorumlock
      --naive      ... with the design it warns about
      --svg FILE   draw it as a timeline
      --html FILE  one page with both runs, told and drawn

NAME may also be a file of your own: ./mine.toml

example:
  quorumlock lab run pause-while-holding --html story.html

exit codes of run:
  0   the lock holds
  1   the naive design fails, as the story says
  2   there is no such story, or its file is malformed
  3   the run did not show what the story says
"""


def add_options(parser: Parser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    listed = actions.add_parser("list", help="all stories")
    show = actions.add_parser("show", help="one story")
    run = actions.add_parser("run", help="replay a story")
    for one in (listed, show, run):
        add_verbose(one)
    for one in (show, run):
        one.add_argument("name", metavar="NAME", help="of a story, or a file of your own (./mine.toml)")
    run.add_argument("--naive", action="store_true", help="with the design that the story warns about")
    run.add_argument("--svg", metavar="FILE", help="draw it as a timeline")
    run.add_argument("--html", metavar="FILE", help="one page with both runs, told and drawn")


def run(arguments: argparse.Namespace) -> int:
    from ..lab.story import BadStory, UnknownStory

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no · is no reason to fail
    try:
        code = _lab(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `quorumlock lab list | head`
        nobody_reads()
        return EX_OK
    except (BadStory, UnknownStory, OSError, UnicodeDecodeError) as error:
        if arguments.verbose > 1:
            raise
        complain(_what_was_wrong(error, arguments))
    return EX_BAD_INPUT


def _what_was_wrong(error: Exception, arguments: argparse.Namespace) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or arguments.name}: {error.strerror or error}"
    return f"{arguments.name}: not a text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _lab(arguments: argparse.Namespace) -> int:
    from ..lab.page_text import shown_story

    if arguments.action == "list":
        return _list()
    story = _load(arguments.name)
    if arguments.action == "show":
        print(shown_story(story))
        return EX_OK
    return _run(story, arguments)


def _load(name: str) -> Story:
    """A scenario by its name, or a file of one's own."""
    from ..lab import story as stories

    if not name.endswith(".toml"):
        return stories.load(name)
    from ..lab.story_reader import parse

    path = Path(name)
    return parse(path.read_text(encoding="utf-8"), path.stem)


def _list() -> int:
    from ..lab import story as stories
    from ..lab.page_text import WIDTH

    names = stories.names()
    for name in names:
        title = stories.load(name).title
        room = WIDTH - 24
        print(f"{name:<23} {title if len(title) <= room else title[: room - 1] + '…'}")
    print(f"\n{len(names)} stories. To see one: quorumlock lab run {names[0]} (add --naive to see it fail)")
    return EX_OK


def _run(story: Story, arguments: argparse.Namespace) -> int:
    from ..lab.page_text import tell
    from ..lab.stage import play
    from ..lab.story_facts import judge

    verdict = judge(play(story, naive=arguments.naive))
    print(tell(verdict))
    if arguments.svg is not None:
        from ..lab.drawing import draw

        _write(arguments.svg, draw(verdict))
    if arguments.html is not None:
        from ..lab.page import page

        other = judge(play(story, naive=not arguments.naive))
        ours, naive = (other, verdict) if arguments.naive else (verdict, other)
        _write(arguments.html, page(ours, naive))
        if not other.shown:
            verdict = other
    if not verdict.shown:
        complain(f"{story.name} was not as told: expected {'; '.join(verdict.unmet)}")
        return EX_NOT_AS_TOLD
    return EX_FAILS if arguments.naive else EX_OK


def _write(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
    print(f"Written: {name}")
