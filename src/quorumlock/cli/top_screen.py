"""The screen of `quorumlock top`, drawn with rich: a table that fits, whatever the size and the names."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..errors import NoQuorum
from .looking import ago, shown, span, who

if TYPE_CHECKING:
    from ..inspecting import Inspection

ORDERS: dict[str, Callable[[Inspection], Any]] = {
    "name": lambda one: one.name,
    "longest held": lambda one: (one.holder.since or 0.0) if one.holder else float("inf"),
    "most waiting": lambda one: (-len(one.waiters), one.name),
}
STATES = {"held": "green", "shared": "cyan", "closed": "dim", "contested": "red"}
NARROW = 100
"""Columns below which only what matters most is shown."""
KEYS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|.", re.DOTALL)
MOVES = {
    b"\x1b[A": (-1, 0), b"k": (-1, 0), b"\x1b[B": (1, 0), b"j": (1, 0),
    b"\x1b[5~": (0, -1), b"b": (0, -1), b"\x1b[6~": (0, 1), b" ": (0, 1),
}  # fmt: skip
"""By how many lines, and pages."""
FRAME = 4
"""Lines around the rows of the table."""


class Top:
    """What is shown, and which keys change it."""

    def __init__(self, locks: Any, pattern: str, limit: int) -> None:
        self._locks = locks
        self._pattern = pattern
        self._limit = limit
        self._found: list[Inspection] = []
        self._known = False
        self._trouble = ""
        self._order = 0
        self._first = 0
        self._console = Console(highlight=False)

    def run(self, every: float) -> None:
        """Until q is pressed."""
        keys = sys.stdin.fileno()
        before = termios.tcgetattr(keys)
        # Drawn when we say so: a thread of rich's own might look while the table is being changed.
        with Live(console=self._console, screen=True, auto_refresh=False, get_renderable=self._picture) as live:
            try:
                tty.setcbreak(keys)
                while True:
                    self._look()
                    live.refresh()
                    due = time.monotonic() + every
                    while (left := due - time.monotonic()) > 0:
                        if select.select([keys], [], [], left)[0]:
                            if self._quits(os.read(keys, 32)):
                                return
                            live.refresh()
            finally:
                termios.tcsetattr(keys, termios.TCSADRAIN, before)

    def _look(self) -> None:
        try:
            self._found, self._trouble = self._locks.survey(self._pattern, self._limit), ""
            self._known = True
        except NoQuorum as error:  # the last that was seen stays
            self._trouble = str(error)

    def _quits(self, typed: bytes) -> bool:
        """Several keys may come at once."""
        if not typed:  # the terminal is gone
            return True
        for key in KEYS.findall(typed):
            if key in (b"q", b"Q", b"\x04"):
                return True
            if key == b"s":
                self._order, self._first = (self._order + 1) % len(ORDERS), 0
            lines, pages = MOVES.get(key, (0, 0))
            self._first = max(0, min(self._first + lines + pages * self._rows(), len(self._found) - self._rows()))
        return False

    def _rows(self) -> int:
        return max(1, self._console.size.height - FRAME)

    def _picture(self) -> Group:
        order = list(ORDERS)[self._order]
        found = sorted(self._found, key=ORDERS[order])
        self._first = max(0, min(self._first, len(found) - self._rows()))
        visible = found[self._first : self._first + self._rows()]
        return Group(self._headline(found), self._table(visible), self._footline(found, visible, order))

    def _headline(self, found: list[Inspection]) -> Text:
        waiting = sum(len(one.waiters) for one in found)
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{len(found)} held" if self._known else "nobody can tell what is held", "bold")
        line.append(f", {waiting} waiting" if waiting else "", "yellow")
        line.append(f"   {time.strftime('%H:%M:%S')}   {shown(', '.join(self._locks.engine.labels))}", "dim")
        return line

    def _table(self, visible: list[Inspection]) -> Table:
        wide = self._console.size.width >= NARROW
        table = Table(box=None, expand=True, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        table.add_column("NAME", no_wrap=True, overflow="ellipsis", ratio=3)
        table.add_column("STATE", no_wrap=True, overflow="ellipsis", min_width=6, max_width=18)
        table.add_column("HOLDER", no_wrap=True, overflow="ellipsis", ratio=2)
        table.add_column("FOR", no_wrap=True, justify="right", min_width=7)
        table.add_column("WAIT", no_wrap=True, justify="right", min_width=4)
        if wide:
            table.add_column("LEFT", no_wrap=True, justify="right", min_width=6)
            table.add_column("FENCE", no_wrap=True, justify="right", min_width=16)
            table.add_column("NOTE", no_wrap=True, overflow="ellipsis", ratio=2)
        for one in visible:
            table.add_row(*self._row(one)[: 8 if wide else 5])
        return table

    def _row(self, one: Inspection) -> list[Text]:
        holder, more = one.holder, len(one.holders) - 1
        kind = f" {one.kind}" if one.kind not in (None, "mutex", "read") else ""
        return [
            Text(shown(one.name)),
            Text(f"{one.state}{kind}", STATES.get(one.state, "")),
            Text(shown(who(holder)) + (f" +{more}" if more > 0 else "")),
            Text(ago(holder.since) if holder else ""),
            Text(str(len(one.waiters) or ""), "yellow"),
            Text(span(holder.remaining) if holder else ""),
            Text(str(holder.fence or "") if holder else ""),
            Text(shown(holder.note) if holder else ""),
        ]

    def _footline(self, found: list[Inspection], visible: list[Inspection], order: str) -> Text:
        if self._trouble:
            return Text(f"\n{shown(self._trouble)}", "red", no_wrap=True, overflow="ellipsis")
        if not found:
            said = "no lock is held"
        else:
            more = " or more" if len(found) == self._limit else ""
            said = f"{self._first + 1}-{self._first + len(visible)} of {len(found)}{more}, by {order}"
        return Text(f"\n{said}   q quit  s sort  ↑↓ space move", "dim", no_wrap=True, overflow="ellipsis")
