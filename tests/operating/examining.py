"""The doctor, called on servers of a test's own: what it finds, beside what is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quorumlock.lab.servers import Server

from .tools import call

CODES = {"ok": 0, "unseen": 0, "warning": 1, "error": 2}
FINE = ("ok", "unseen")


def fleet(*servers: Server) -> str:
    return ",".join(server.url for server in servers)


def examined(url: str, *options: str, seconds: float = 0.1) -> list[dict[str, Any]]:
    """Everything that is found; the exit code goes with the worst of it."""
    said = call("doctor", "--json", "--seconds", str(seconds), "--url", url, *options)
    assert said.err == ""
    found = said.json
    assert said.code == CODES[found["severity"]]
    assert said.code == max(CODES[one["severity"]] for one in found["findings"])
    assert all(one["remedy"] for one in found["findings"] if one["severity"] not in FINE), (
        "a trouble without a remedy"
    )
    return list(found["findings"])


def troubles(url: str, check: str, *options: str, seconds: float = 0.1) -> list[tuple[str, str | None, str]]:
    """What one check has to say that is not well: severity, node, words."""
    found = [one for one in examined(url, *options, seconds=seconds) if one["check"] == check]
    assert found, f"nothing was said of {check}"
    return [(one["severity"], one["node"], one["says"]) for one in found if one["severity"] not in FINE]


def only(found: list[tuple[str, str | None, str]]) -> tuple[str, str | None, str]:
    assert len(found) == 1, found
    return found[0]


def toml(folder: Path, **settings: object) -> str:
    """A quorumlock.toml, for what has no option."""
    path = folder / "quorumlock.toml"
    path.write_text("".join(f"{name} = {str(value).lower()}\n" for name, value in settings.items()))
    return f"--config={path}"
