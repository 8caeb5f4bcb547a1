"""The pages of the documentation: where they are, and the blocks that are in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"(?:redis|valkey)s?://[\w.]+")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


ALL_PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGES = [page for page in ALL_PAGES if "/how-to/" in page or "```python" in text_of(page)]
WITH_SERVERS = [page for page in PAGES if ADDRESS.search(text_of(page))]
ALONE = [page for page in PAGES if page not in WITH_SERVERS]


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, each with the number of lines before it."""
    return [
        (text.count("\n", 0, match.start(2)), match.group(2))
        for match in FENCE.finditer(text)
        if match.group(1) == language
    ]


def program(text: str) -> str:
    """The Python of a page, each line where it is in the page."""
    lines: list[str] = []
    for before, code in blocks(text, "python"):
        lines += [""] * (before - len(lines))
        lines += code.splitlines()
    return "\n".join(lines) + "\n"


def commands(text: str) -> list[str]:
    """The lines of the shell blocks, without comments and empty ones."""
    lines = [line for _, shell in blocks(text, "sh") for line in shell.splitlines()]
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines) if line]
