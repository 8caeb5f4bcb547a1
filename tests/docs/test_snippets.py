"""The examples of README and docs run as they stand.

All ```python blocks of a page are one program, run in order in a process of its own; a line of a ```sh block that
begins with `quorumlock` is run before. Only addresses are replaced, by those of real servers.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from quorumlock.lab.servers import Servers

from ..cli.tools import quorumlock

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ALL_PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGES = [page for page in ALL_PAGES if "```python" in (ROOT / page).read_text()]


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


def localised(text: str, servers: Servers) -> str:
    """The servers of the examples, as they are called here. One server is never both alone and in a fleet."""
    here = {f"redis://10.0.0.{i + 1}": servers[i].url for i in range(3)} | {"redis://localhost": servers[4].url}
    found = set(re.findall(r"redis://[\w.]+(?!\S*@)", text))
    assert found <= here.keys(), f"addresses that the test does not know: {found - here.keys()}"
    return re.sub(r"redis://[\w.]+", lambda match: here[match.group()], text)


def run(text: str, servers: Servers, folder: Path) -> subprocess.CompletedProcess[str]:
    text = localised(text, servers)
    for _, shell in blocks(text, "sh"):
        for line in shell.splitlines():
            if line.startswith("quorumlock "):
                done = quorumlock(*line.split()[1:])
                assert done.returncode == 0, done.stderr
    page = folder / "page.py"
    page.write_text(program(text))
    # Examples keep their Locker for the life of the program; that its sockets end with it is no mistake.
    strict = ["-W", "error", "-W", "ignore::ResourceWarning"]
    return subprocess.run([sys.executable, *strict, str(page)], capture_output=True, text=True, timeout=60)


@pytest.mark.live
@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, servers: Servers, tmp_path: Path) -> None:
    done = run((ROOT / page).read_text(), servers, tmp_path)
    assert done.returncode == 0, f"{page} (the lines are the page's):\n{done.stderr}"
    assert done.stderr == ""


def test_no_example_is_overlooked() -> None:
    assert {"README.md", "docs/tutorial.md"} <= set(PAGES)
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert text.count("```") == 2 * len(FENCE.findall(text)), f"{page}: a fence that is not understood"
        assert text.count("```python") == len(blocks(text, "python"))


@pytest.mark.live
def test_an_example_that_is_wrong_fails(servers: Servers, tmp_path: Path) -> None:
    """Each claim of the pages, turned into its opposite, must be noticed."""
    text = (ROOT / "docs/tutorial.md").read_text()
    wrong = text.replace("assert second.fence > first.fence", "assert second.fence < first.fence")
    assert wrong != text
    done = run(wrong, servers, tmp_path)
    assert done.returncode == 1
    line = wrong[: wrong.index("second.fence < first.fence")].count("\n") + 1
    assert f"line {line}," in done.stderr


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{page} links to {target}"
