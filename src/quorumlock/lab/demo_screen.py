"""Where the demo is shown: plain lines for pipes and logs, a picture that changes (demo_live) on terminals."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import Protocol

from .demo_story import Story

COLUMNS = 80
LINES = 24


class Screen(Protocol):
    """A place to show a story: entered while it happens, closed with the table."""

    def news(self, text: str) -> None: ...
    def refresh(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Screen: ...
    def __exit__(self, *_: object) -> None: ...


def new_screen(story: Story, plain: bool) -> Screen:
    """A picture, where rich is installed and the terminal can show it."""
    if not plain and _can_draw():
        try:
            from .demo_live import Live
        except ImportError:
            pass  # without rich it is lines
        else:
            return Live(story)
    return Plain(story)


def _can_draw() -> bool:
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return False
    size = shutil.get_terminal_size()
    can_spell = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return can_spell and size.columns >= COLUMNS and size.lines >= LINES


class Plain:
    """Lines of ASCII."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._counted_at = 0.0

    def news(self, text: str) -> None:
        print(f"{self._story.seconds:5.1f} s  {text}", flush=True)

    def refresh(self) -> None:
        if self._story.done and self._story.seconds - self._counted_at >= 1.0:
            self._counted_at = self._story.seconds
            shares = " + ".join(str(len(worker.wrote_at)) for worker in self._story.workers)
            self.news(f"  increments so far: {self._story.done} ({shares})")

    def close(self) -> None:
        story = self._story
        lines = [f"  {what:<22}{value:>7}   {remark}".rstrip() for what, value, remark in story.facts()]
        lines.append("")
        for what, before, after in (story.latency_headers(), *story.latencies()):
            lines.append(f"  {what:<34}{before:>18}{after:>18}")
        lines.append(f"  {story.note()}")
        for paragraph in filter(None, (story.moral(), story.verdict())):
            lines += ["", textwrap.fill(paragraph, COLUMNS - 2)]
        print("\n".join(["", *lines]), flush=True)

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *_: object) -> None:
        pass
