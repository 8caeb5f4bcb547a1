"""The demo on a terminal, drawn with rich: nodes, a timeline of each worker, the news, and the closing tables."""

from __future__ import annotations

import math
import time
from collections import Counter

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .demo_story import Story, Worker

WIDTH = 78
"""Of 80 columns: the ^C that a terminal echoes has room behind the picture, and does not break it."""
TIMELINE = 45
SLOTS = (1 / 3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds that one character of a timeline stands for: the first with which everything fits."""
TICK = 15
NEWS = 8
LEVELS = "▁▂▃▄▅▆▇█"
FRAME = 0.1
STATES = {"starts": "dim", "works": "cyan", "between": "yellow", "stopped": "red", "ended": "dim"}


class Live:
    """A picture that changes."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._told: list[Text] = []
        self._drawn_at = 0.0
        self._console = Console(highlight=False)
        # Drawn when we say so: a thread of rich's own might look while the story is being changed.
        self._live = RichLive(console=self._console, get_renderable=self._picture, auto_refresh=False)

    def news(self, text: str) -> None:
        told = Text.assemble((f"{self._story.seconds:5.1f} s  ", "dim"), text, no_wrap=True, overflow="ellipsis")
        self._told.append(told)
        self._live.refresh()

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self._drawn_at >= FRAME:
            self._drawn_at = now
            self._live.refresh()

    def __enter__(self) -> Live:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def close(self) -> None:
        """The tables, and the verdict."""
        story, well = self._story, not self._story.troubles()
        colour = "green" if well else "red"
        parts: list[RenderableType] = [_facts(story), Text(), _latencies(story), Text(story.note(), style="dim")]
        if moral := story.moral():
            parts += [Text(), Text(moral)]
        parts += [Text(), Text(story.verdict(), style=f"bold {colour}")]
        self._console.print(Panel(Group(*parts), width=WIDTH, padding=(0, 2), border_style=colour))

    def _picture(self) -> RenderableType:
        told = self._told[-NEWS:] + [Text()] * (NEWS - len(self._told))
        parts: list[RenderableType] = [
            self._nodes(),
            Text(),
            *self._workers(),
            self._axis(),
            self._counter(),
            Text(),
            *told,
        ]
        return Panel(
            Group(*parts),
            title=Text("quorumlock: one lock, five nodes, three workers", style="bold"),
            subtitle=Text(f"{LEVELS[2]} increments   ━ stopped   ✕ late write refused", style="dim"),
            width=WIDTH,
            padding=(1, 2, 0, 2),
            border_style="dim",
        )

    def _nodes(self) -> Text:
        story, line = self._story, Text("nodes     ")
        for index in range(story.nodes):
            dead = index in story.dead
            mark, style = ("✕", "bold red") if dead else ("●", "green") if story.ready else ("○", "dim")
            line.append(mark, style=style).append(f" {index + 1}    ", style="dim strike" if dead else "")
        if not story.ready:
            return line.append("    starting", style="dim")
        return line.append(f"    {story.nodes - len(story.dead)} of {story.nodes}: ").append(
            "a majority", style="green"
        )

    def _slot(self) -> float:
        return next((slot for slot in SLOTS if self._story.seconds < slot * TIMELINE), SLOTS[-1])

    def _place(self, at: float) -> int:
        """Where on the timeline an instant is; one that never came is behind its end."""
        passed = min(at - self._story.started_at, self._slot() * TIMELINE)
        return int(passed / self._slot())

    def _workers(self) -> list[Text]:
        workers = self._story.workers
        counts = [Counter(self._place(at) for at in worker.wrote_at) for worker in workers]
        most = max((done for count in counts for done in count.values()), default=1)
        return [
            Text(f"worker {number}  ")
            .append_text(self._timeline(worker, count, most))
            .append(f"{len(worker.wrote_at):6}  ", style="bold")
            .append(worker.state, style=STATES[worker.state])
            for number, (worker, count) in enumerate(zip(workers, counts, strict=True), start=1)
        ]

    def _timeline(self, worker: Worker, count: Counter[int], most: int) -> Text:
        line = Text()
        now = self._place(self._story.started_at + self._story.seconds)
        refused = {self._place(at) for at in worker.refused_at}
        stopped = range(self._place(worker.stopped_at), self._place(worker.woke_at))
        for place in range(TIMELINE):
            if place in refused:
                line.append("✕", style="bold yellow")
            elif place in stopped and place <= now:
                line.append("━", style="red")
            elif done := count[place]:
                line.append(LEVELS[math.ceil(len(LEVELS) * done / most) - 1], style="cyan")
            else:
                line.append("·" if place <= now else " ", style="dim")
        return line

    def _axis(self) -> Text:
        labels = "".join(f"{place * self._slot():g} s".ljust(TICK) for place in range(0, TIMELINE, TICK))
        line = Text(labels[:TIMELINE].ljust(TIMELINE + 1), style="dim")
        if (place := self._place(self._story.killed_at)) < TIMELINE:
            mark = "✕ nodes killed"
            line = Text.assemble((labels[:place], "dim"), (mark, "red"), (labels[place + len(mark) :], "dim"))
        return Text(" " * 10).append_text(line)

    def _counter(self) -> Text:
        line = Text("counter   ").append(str(self._story.done), style="bold")
        if self._story.fence:
            line.append(f"   last write: worker {self._story.holder + 1}, fence {self._story.fence}", style="dim")
        return line


def _facts(story: Story) -> Table:
    table = _table()
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    for row in story.facts():
        table.add_row(*row)
    return table


def _latencies(story: Story) -> Table:
    table = _table(show_header=True)
    for number, header in enumerate(story.latency_headers()):
        table.add_column(header, justify="right" if number else "left", style="bold" if number else "")
    for row in story.latencies():
        table.add_row(*row)
    return table


def _table(*, show_header: bool = False) -> Table:
    return Table(box=None, show_header=show_header, header_style="dim", pad_edge=False, padding=(0, 3, 0, 0))
