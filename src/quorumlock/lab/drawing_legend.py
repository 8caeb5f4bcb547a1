"""The legend of a picture: what is in it, and nothing else."""

from __future__ import annotations

from .drawing_paper import Paper
from .stage_record import Record

BARS = {
    "lease": ("a", "lease: its holder may rely on it"),
    "belief": ("belief a-line", "over, but its holder has not noticed"),
    "ask": ("ask a-line", "asks and waits"),
    "pause": ("pause", "stopped"),
    "hung": ("pause", "silent"),
    "dead": ("gone", "dead"),
    "lock": ("a", "lock on a node"),
    "quarantine": ("quarantine", "quarantine: grants nothing"),
    "down": ("down", "down"),
}
SIGNS = {
    "renewed": "renewed",
    "read": "read",
    "write": "write accepted",
    "refused": "refused by the guard",
    "lost": "update lost",
    "fault": "fault",
}
HEIGHTS = {"lock": 8, "ask": 7}


def legend(paper: Paper, record: Record, kinds: set[str], y: float, left: float, right: float) -> float:
    """Draws it, in as many rows as it needs; returns where it ends. `kinds`: of the bars that can be seen."""
    signs = {mark.kind for mark in record.marks}
    x = left
    entries = [(kind, label) for kind, (_, label) in BARS.items() if kind in kinds]
    entries += [(kind, label) for kind, label in SIGNS.items() if kind in signs]
    if record.overlaps:
        entries.append(("clash", "two holders"))
    for kind, label in entries:
        width = 28 + paper.width_of(label, 12) + 16
        if x + width > right and x > left:
            x, y = left, y + 19
        if kind in BARS or kind == "clash":
            height = HEIGHTS.get(kind, 12)
            paper.rect(x, y - 4 - height / 2, 22, height, "clash" if kind == "clash" else BARS[kind][0])
        else:
            if kind == "renewed":
                paper.rect(x, y - 10, 22, 12, "a")
            paper.sign(kind, x + 11, y - 4, "a")
        paper.text(label, x + 28, y, 12, "faint")
        x += width
    return y + 6
