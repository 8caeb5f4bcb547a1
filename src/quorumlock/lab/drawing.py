"""A run as a picture: lanes for clients, storage and nodes, time from left to right. Plain SVG.

What lasts is a bar, what happens a mark. Texts never overlap: each is put where there is room (`drawing_paper.py`).
"""

from __future__ import annotations

from .drawing_legend import legend
from .drawing_paper import COLOURS, Paper
from .page_text import nodes
from .stage_record import Bar, Mark
from .stage_storage import LANE as STORAGE
from .story_facts import Verdict

WIDTH = 960
LEFT, RIGHT = 86, 22
CLIENT, NODE = 62, 22
BAR = 22
LABEL = 15


def draw(verdict: Verdict) -> str:
    """The picture, as the text of an SVG file."""
    return Drawing(verdict).svg()


class Drawing:
    """Lays one run out, from top to bottom."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.run = verdict.run
        self.record = verdict.run.record
        self.until = verdict.run.story.until
        self.paper = Paper(WIDTH)
        self.lanes: dict[str, float] = {}
        """Where the bar of a lane begins, from above."""

    def x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * max(0.0, min(at, self.until)) / self.until

    def svg(self) -> str:
        story, paper = self.run.story, self.paper
        bad = self.run.naive or not self.verdict.shown
        y = paper.block(story.title, 20, 32, 17, "ink strong", WIDTH - 40)
        cast = f"{self.run.design.says} · {nodes(self.run.nodes)} · ttl {story.cast.ttl:g} s"
        y = paper.block(cast, 20, y + 10, 13, "bad strong" if bad else "good strong", WIDTH - 40)
        top = y + 4
        y = self.place(top)
        self.grid(top, y)
        self.overlaps()
        self.reserve()
        for name in story.cast.clients:
            self.client(name)
        if STORAGE in self.lanes:
            self.storage()
        for number in range(1, self.run.nodes + 1):
            self.node(f"node {number}")
        seen = {bar.kind for bar in self.record.bars if bar.lane in self.lanes and self.visible(bar)}
        y = legend(paper, self.record, seen, y + 40, LEFT, WIDTH - RIGHT)
        y = self.outcome(y + 10, bad)
        return paper.svg(y + 14, f"{story.name}: {story.title}", f"{cast}. {self.verdict.conclusion}")

    # Where things are.

    def place(self, y: float) -> float:
        """Gives every lane its place, from the top; returns where the last one ends."""
        cast = self.run.story.cast
        for name in cast.clients:
            self.lanes[name] = y + 20
            y += CLIENT
        if any(mark.lane == STORAGE for mark in self.record.marks):
            self.lanes[STORAGE] = y + 10
            y += 19 + LABEL * self.rows_of_storage()
        y += 8
        for number in range(1, self.run.nodes + 1):
            self.lanes[f"node {number}"] = y + 4
            y += NODE
        return y

    def arrow(self, mark: Mark) -> tuple[float, float, float, float] | None:
        """The way of a write from its client to the storage."""
        if mark.lane != STORAGE or mark.sent_at is None:
            return None
        return self.x(mark.sent_at), self.lanes[mark.owner] + BAR + 2, self.x(mark.at), self.lanes[STORAGE] - 7

    def reserve(self) -> None:
        """Texts keep out of the way of arrows, too."""
        for mark in self.record.marks:
            if way := self.arrow(mark):
                self.paper.reserve(*way)

    def rows_of_storage(self) -> int:
        """How many lines its labels take."""
        rows: list[float] = []
        for mark in sorted((one for one in self.record.marks if one.lane == STORAGE), key=lambda one: one.at):
            start, width = self.label_of(mark)
            for row, end in enumerate(rows):
                if start > end:
                    rows[row] = start + width + 8
                    break
            else:
                rows.append(start + width + 8)
        return max(1, len(rows))

    def label_of(self, mark: Mark) -> tuple[float, float]:
        width = self.paper.width_of(self.record.shown(mark.label), 12)
        return max(LEFT + 2, min(self.x(mark.at) + 8, WIDTH - RIGHT - width)), width

    # What is drawn.

    def grid(self, top: float, bottom: float) -> None:
        step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 1e9) if self.until / step <= 12)
        at = 0.0
        while at <= self.until:
            self.paper.line(self.x(at), top, self.x(at), bottom + 4, "grid")
            self.paper.text(f"{at:g} s", self.x(at), bottom + 18, 11, "faint", anchor="middle")
            at += step
        for name in (*self.run.story.cast.clients, STORAGE):
            if name in self.lanes:
                y = self.lanes[name] + (BAR / 2 if name != STORAGE else 0)
                self.paper.line(LEFT, y, WIDTH - RIGHT, y, "lane")

    def overlaps(self) -> None:
        """Two holders at a time: the one thing a lock is to prevent."""
        if not self.record.overlaps:
            return
        clients = self.run.story.cast.clients
        top = self.lanes[clients[0]] - 6
        bottom = self.lanes[clients[-1]] + BAR + 6
        for start, end in self.record.overlaps:
            self.paper.rect(self.x(start), top, max(3.0, self.x(end) - self.x(start)), bottom - top, "clash")
        start, end = max(self.record.overlaps, key=lambda one: one[1] - one[0])
        middle = (self.x(start) + self.x(end)) / 2
        self.paper.near(
            "two holders", middle, [self.lanes[name] - 9 for name in clients], 12, "bad strong", "middle"
        )

    def bars(self, lane: str, *kinds: str) -> list[Bar]:
        return [bar for bar in self.record.bars if bar.lane == lane and bar.kind in kinds and self.visible(bar)]

    def visible(self, bar: Bar) -> bool:
        return self.x(bar.end) - self.x(bar.start) >= 0.8

    def box(self, bar: Bar, y: float, height: float, css: str) -> None:
        self.paper.rect(self.x(bar.start), y, self.x(bar.end) - self.x(bar.start), height, css)

    def inside(self, bar: Bar, text: str, y: float, css: str, size: int = 12) -> bool:
        """Writes into a bar, if there is room."""
        width = self.x(bar.end) - self.x(bar.start)
        if self.paper.width_of(text, size) + 8 > width:
            return False
        half = self.paper.width_of(text, size) / 2 + 4
        for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8):
            at = self.x(bar.start) + width * part
            if half <= width * part <= width - half and self.paper.near(text, at, [y], size, css, "middle"):
                return True
        return False

    def client(self, name: str) -> None:
        y, paper = self.lanes[name], self.paper
        paper.text(f"client {name}", 20, y + 16, 13, "ink strong")
        for bar in self.bars(name, "dead"):
            self.box(bar, y - 4, BAR + 8, "gone")
            self.inside(bar, "dead", y + 15, "faint")
        for bar in self.bars(name, "ask"):
            self.box(bar, y + 7, 8, f"ask {COLOURS[name]}-line")
        for bar in self.bars(name, "lease"):
            self.box(bar, y, BAR, COLOURS[name])
        for bar in self.bars(name, "belief"):
            self.box(bar, y, BAR, f"belief {COLOURS[name]}-line")
        for bar in self.bars(name, "pause"):
            self.box(bar, y - 3, BAR + 6, "pause")
        for bar in self.bars(name, "lease"):
            fenced = bar.label and self.run.design.guard != "none"
            words = [f"lease, fence {self.record.shown(bar.label)}", "lease"] if fenced else ["lease"]
            any(self.inside(bar, text, y + 15, "light") for text in words)
        for bar in self.bars(name, "cut"):
            paper.line(self.x(bar.start), y - 4, self.x(bar.end), y - 4, "cut")
        self.flags(name, y)

    def flags(self, name: str, y: float) -> None:
        rows, paper = [y - 8, y + BAR + 14], self.paper
        for mark in self.record.marks:
            if mark.lane == name:
                if mark.kind == "renewed":
                    if paper.free(self.x(mark.at) - 5, y + 4, self.x(mark.at) + 5, y + BAR - 4):
                        paper.sign("renewed", self.x(mark.at), y + BAR / 2, "")
                    continue
                if mark.kind == "fault":
                    paper.sign("fault", self.x(mark.at), y - 12, "bad")
                    paper.near(mark.label, self.x(mark.at) + 9, rows[:1], 12, "ink", "start")
                    continue
                paper.line(self.x(mark.at), y - 4, self.x(mark.at), y + BAR + 4, "told")
                self.beside(mark.label, mark.at, rows, "ink")
        for bar in self.bars(name, "pause", "cut"):
            word = f"stopped{bar.label}" if bar.kind == "pause" else "cut off"
            paper.near(word, (self.x(bar.start) + self.x(bar.end)) / 2, rows, 12, "faint", "middle")
        for bar in self.bars(name, "ask", "belief"):
            if bar.kind == "belief":
                any(
                    self.inside(bar, text, y + 15, "ink")
                    for text in ("does not know that it is over", "does not know", "not noticed")
                )
            elif self.x(bar.end) - self.x(bar.start) > 60:
                words = f"waits {bar.end - bar.start:.1f} s"
                paper.near(words, (self.x(bar.start) + self.x(bar.end)) / 2, rows[::-1], 12, "faint", "middle")

    def beside(self, label: str, at: float, rows: list[float], css: str) -> None:
        """A label at a mark: to its right, or to its left; above, or below."""
        if not self.paper.near(label, self.x(at) + 5, rows, 12, css, "start"):
            self.paper.near(label, self.x(at) - 5, rows, 12, css, "end")

    def storage(self) -> None:
        y, paper = self.lanes[STORAGE], self.paper
        paper.text("storage", 20, y + 5, 13, "ink strong")
        marks = sorted((mark for mark in self.record.marks if mark.lane == STORAGE), key=lambda one: one.at)
        for mark in marks:
            x = self.x(mark.at)
            css = {"refused": "good", "lost": "bad"}.get(mark.kind, "ink")
            if (way := self.arrow(mark)) and mark.sent_at is not None:
                paper.arrow(*way, COLOURS[mark.owner], dashed=mark.at - mark.sent_at > self.until / 50)
            paper.sign(mark.kind, x, y, COLOURS.get(mark.owner, "ink"))
            start, _ = self.label_of(mark)
            label = self.record.shown(mark.label)
            rows = [y + 19 + LABEL * row for row in range(self.rows_of_storage())]
            if not paper.near(label, start, rows, 12, f"{css} strong" if css != "ink" else css, "start"):
                paper.near(label, x - 8, rows, 12, f"{css} strong" if css != "ink" else css, "end")

    def node(self, lane: str) -> None:
        y, paper = self.lanes[lane], self.paper
        paper.text(lane, 20, y + 11, 12, "ink")
        paper.line(LEFT, y + 7, WIDTH - RIGHT, y + 7, "lane")
        for bar in self.bars(lane, "down", "hung", "quarantine"):
            self.box(bar, y - 1, 16, {"quarantine": "quarantine", "down": "down", "hung": "pause"}[bar.kind])
        for bar in self.bars(lane, "lock"):
            self.box(bar, y + 2, 10, COLOURS.get(bar.owner, "ink"))
        for bar in self.bars(lane, "lock"):
            self.inside(bar, bar.owner, y + 11, "light", 10)
        for bar in self.bars(lane, "down", "hung", "quarantine"):
            words = {"quarantine": "quarantine", "down": "down", "hung": "silent"}[bar.kind]
            if not any(one.start < bar.end and one.end > bar.start for one in self.bars(lane, "lock")):
                self.inside(bar, words, y + 11, "ink", 11)
        for mark in self.record.marks:
            if mark.lane == lane:
                paper.sign("fault", self.x(mark.at), y + 7, "bad")
                if paper.near(mark.label, self.x(mark.at) + 9, [y + 11], 11, "ink", "start", backed=True):
                    continue
                paper.near(mark.label, self.x(mark.at) - 9, [y + 11], 11, "ink", "end", backed=True)

    def outcome(self, y: float, bad: bool) -> float:
        """The conclusion, in one strip."""
        sign = "✗" if bad else "✓"
        bottom = self.paper.block(f"{sign} {self.verdict.conclusion}", 34, y + 22, 14, "ink", WIDTH - 76)
        self.paper.under("bad-strip" if bad else "good-strip", 20, y, WIDTH - 40, bottom - y + 4)
        return bottom + 4
