"""What the demo shows: the story so far, live with rich on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 78
BAR = 24


@dataclass(slots=True)
class Worker:
    """One worker, as its own words tell it."""

    state: str = "starts"
    increments: int = 0
    refused: int = 0
    told: int = 0
    fence: int = 0


class Story:
    """Everything that happened so far."""

    def __init__(self, ports: list[int], workers: int) -> None:
        self.started_at = time.monotonic()
        self.ports = ports
        self.dead: set[int] = set()
        self.workers = [Worker() for _ in range(workers)]
        self.fence = 0
        self.holder = 0
        self.latencies: dict[bool, list[float]] = {False: [], True: []}
        """Seconds until the lock was ours; the key says whether a node was dead."""
        self.lost: int | None = None
        self.failure = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def increments(self) -> int:
        return sum(worker.increments for worker in self.workers)

    def node_died(self, index: int) -> None:
        self.dead.add(index)

    def heard(self, number: int, did: str, fence: int = 0, took: float = 0.0, reason: str = "") -> None:
        """A worker said something."""
        worker = self.workers[number]
        if did == "increment":
            worker.state = "works"
            worker.increments += 1
            self.fence, self.holder = fence, number + 1
            self.latencies[bool(self.dead)].append(took)
        elif did == "dawdle":
            worker.state, worker.fence = "dawdles", fence
        elif did == "refused":
            worker.refused += 1
        elif did == "lost":
            worker.state = "works"
            worker.told += 1

    def settle(self, value: int) -> None:
        """The counter's last value: what was acknowledged and is not in it, is lost."""
        self.lost = self.increments - value

    def is_well(self) -> bool:
        return not self.failure and self.lost == 0 and self.increments > 0

    def rows(self) -> list[tuple[str, str]]:
        """The closing table."""
        nodes = len(self.ports)
        return [
            ("increments done", str(self.increments)),
            ("increments lost", "?" if self.lost is None else str(self.lost)),
            ("stale writes refused", str(sum(worker.refused for worker in self.workers))),
            ("leases lost, and told", str(sum(worker.told for worker in self.workers))),
            (f"lock taken in, p50 / p99, {nodes} of {nodes} nodes", _spread(self.latencies[False])),
            (f"lock taken in, p50 / p99, {nodes - 1} of {nodes} nodes", _spread(self.latencies[True])),
        ]

    def verdict(self) -> str:
        if self.is_well():
            return f"Nothing was lost, in {self.seconds:.0f} s."
        return f"Failed: {self.failure or f'{self.lost} of {self.increments} increments were lost'}."


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000 for part in (0.5, 0.99))
    return f"{p50:.1f} / {p99:.1f} ms"


class Screen(Protocol):
    """A place to show a story: entered while it happens, closed with the table."""

    def news(self, text: str) -> None: ...
    def refresh(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Screen: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def new_screen(story: Story, plain: bool) -> Screen:
    """Live on a terminal that can, where rich is installed."""
    if plain or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return Plain(story)
    try:
        return Live(story)
    except ImportError:
        return Plain(story)


class Plain:
    """Lines, for logs and pipes."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._counted_at = 0.0

    def news(self, text: str) -> None:
        print(f"{self._story.seconds:5.1f} s  {text}", flush=True)

    def refresh(self) -> None:
        if self._story.seconds - self._counted_at >= 1.0:
            self._counted_at = self._story.seconds
            shares = " + ".join(str(worker.increments) for worker in self._story.workers)
            self.news(f"  {self._story.increments} increments ({shares})")

    def close(self) -> None:
        print()
        for what, value in self._story.rows():
            print(f"  {what:<42}{value:>16}")
        print(f"\n{self._story.verdict()}", flush=True)

    def __enter__(self) -> Plain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


@dataclass
class Live:
    """A picture that changes, for terminals."""

    story: Story
    _told: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console(highlight=False)
        self._live = RichLive(console=self._console, get_renderable=self._picture, refresh_per_second=10)

    def news(self, text: str) -> None:
        self._told.append((self.story.seconds, text))

    def refresh(self) -> None:
        """The picture is drawn by a thread of rich's own."""

    def close(self) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(width=WIDTH, show_header=False, box=None, padding=(0, 1))
        table.add_column()
        table.add_column(justify="right", style="bold")
        for what, value in self.story.rows():
            table.add_row(what, value)
        self._console.print(table)
        well = self.story.is_well()
        self._console.print(Text(f"\n {self.story.verdict()}\n", style="bold green" if well else "bold red"))

    def __enter__(self) -> Live:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        told = [Text.assemble((f"{when:5.1f} s  ", "dim"), text) for when, text in self._told]
        parts = [self._nodes(), Text(), *self._workers(), Text(), *told]
        title = Text("quorumlock: one lock, five nodes, three workers", style="bold")
        return Panel(Group(*parts), title=title, width=WIDTH, padding=(1, 2))

    def _nodes(self) -> RenderableType:
        from rich.text import Text

        line = Text("nodes     ")
        for index, port in enumerate(self.story.ports):
            dead = index in self.story.dead
            line.append("✕ " if dead else "● ", style="red" if dead else "green")
            line.append(f"{port:<10}", style="dim strike" if dead else "")
        return line

    def _workers(self) -> list[RenderableType]:
        from rich.text import Text

        most = max(1, *(worker.increments for worker in self.story.workers))
        styles = {"works": "cyan", "dawdles": "yellow", "stopped": "red"}
        lines: list[RenderableType] = []
        for number, worker in enumerate(self.story.workers, start=1):
            style = styles.get(worker.state, "dim")
            filled = BAR * worker.increments // most
            line = Text(f"worker {number}  ")
            line.append("█" * filled, style=style).append("░" * (BAR - filled), style="dim")
            line.append(f"{worker.increments:6}  ").append(f"{worker.state:<9}", style=style)
            if worker.refused:
                line.append(f"{worker.refused} write refused", style="yellow")
            lines.append(line)
        counter = Text(f"counter   {self.story.increments}", style="bold")
        if self.story.fence:
            counter.append(f"   last written by worker {self.story.holder}, fence {self.story.fence}", style="dim")
        return [*lines, counter]
