"""Draws the pictures of the docs again, and their table: `python -m tests.lab_stories.redraw`."""

from __future__ import annotations

import re
from pathlib import Path

from quorumlock.lab.drawing import draw

from .played import NAMES, verdict

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "evidence" / "stories.md"
EMBEDDED = re.compile(r"\((?:\.\./)?pictures/story-([\w-]+)-(ours|naive)\.svg\)")
TABLE = re.compile(r"(?<=<!-- table -->\n\n).*?(?=\n\n<!-- end of table -->)", re.DOTALL)


def picture(name: str, kind: str) -> Path:
    return DOCS / "pictures" / f"story-{name}-{kind}.svg"


def table() -> str:
    """What was seen in every story."""
    rows = ["| story | the design it warns about | quorumlock |", "|---|---|---|"]
    for name in NAMES:
        naive, ours = verdict(name, True), verdict(name, False)
        rows.append(f"| `{name}` | *{naive.run.design.says}*: {naive.conclusion} | {ours.conclusion} |")
    return "\n".join(rows)


def embedded() -> list[tuple[str, str]]:
    """The pictures that the page shows."""
    return EMBEDDED.findall(PAGE.read_text(encoding="utf-8"))


def redraw() -> None:
    for name, kind in embedded():
        picture(name, kind).write_text(draw(verdict(name, kind == "naive")), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLE.sub(lambda _: table(), text), encoding="utf-8")


if __name__ == "__main__":
    redraw()
