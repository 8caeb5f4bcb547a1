"""Imports point downwards only: fronts, runners, core, and engines that see the core from the other side."""

from __future__ import annotations

import pytest

from .source import MODULES, imported_modules

GROUND = {"errors", "options", "retry", "events", "clocks"}
LAB = [f"lab.{part}" for part in ("checkers", "client", "ledger", "run", "strokes", "town", "workloads")]
SIMULATOR = {"lab", "front", "leasing", "keeping", "runners", "core", "engines", *GROUND}
"""A front of its own, over the same code as the other two."""
STAGE = [f"lab.{part}" for part in ("naive_players", "stage", "stage_core", "stage_players", "stage_storage")]
"""What plays stories: on the same simulator, with a guard at the resource."""
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "options": {"errors"},
    "retry": {"options"},
    "events": set(),
    "clocks": set(),
    "core": {"core", "errors", "options", "retry"},
    "engines": {"engines", "core", *GROUND},
    "runners": {"runners", "core", "engines.base", *GROUND},
    "runners.virtual": {"runners", "core", "engines", *GROUND},
    "runners.virtual_network": {"runners", "core", "engines", *GROUND},
    "runners.virtual_world": {"runners", "core", "engines", *GROUND},
    "process": set(),
    "decorating": {*GROUND},
    "keeping": {"core", "process", *GROUND},
    "inspecting": {"core", *GROUND},
    "celling": {"core", *GROUND},
    "journal": {"core", *GROUND},
    "leasing": {"core", "keeping", "process", *GROUND},
    "onlooking": {"core", *GROUND},
    "front": {"core", "keeping", "leasing", "onlooking", "process", *GROUND},
    "sync": {
        "sync",
        "front",
        "celling",
        "inspecting",
        "journal",
        "leasing",
        "decorating",
        "keeping",
        "process",
        "runners",
        "core",
        *GROUND,
    },
    "aio": {
        "aio",
        "front",
        "celling",
        "inspecting",
        "journal",
        "leasing",
        "decorating",
        "keeping",
        "process",
        "runners",
        "core",
        *GROUND,
    },
    "connecting": {"sync", "aio", "engines", *GROUND},
    "guards": {"guards", *GROUND},
    "doctoring": {"doctoring", "engines", "core", "runners.visits", *GROUND},
    "observing": {"observing", "core", "guards", "", *GROUND},
    "lab": {"lab", "", *GROUND},
    **dict.fromkeys(LAB, SIMULATOR),
    **{part: {*SIMULATOR, "guards"} for part in STAGE},
    "web": {"web", "", *GROUND},
    "cli": {"cli", "lab", "doctoring", "web", "", "journal", *GROUND},
    "__main__": {"cli"},
    "": {*GROUND, "connecting", "sync", "aio", "core"},
}
"""What each part may import; the empty name is the package itself, the public API."""


def within(name: str, part: str) -> bool:
    return name == part or (part != "" and name.startswith(f"{part}."))


def part_of(name: str) -> str:
    """The longest entry of the table that a module belongs to."""
    return max((part for part in BELOW if within(name, part)), key=len, default="?")


def upward(module: str, imported: set[str]) -> list[str]:
    name = module.partition(".")[2]
    allowed = BELOW[part_of(name)]
    inner = {one.partition(".")[2] for one in imported if one == "quorumlock" or one.startswith("quorumlock.")}
    return sorted(one for one in inner if not any(within(one, part) for part in allowed))


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module: str) -> None:
    assert part_of(module.partition(".")[2]) != "?", "a new part: give it a place in the table"
    assert upward(module, imported_modules(module)) == []


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("quorumlock.core.redlock", "quorumlock.engines.base"),
        ("quorumlock.core.redlock", "quorumlock.runners.base"),
        ("quorumlock.core.redlock", "quorumlock.front"),
        ("quorumlock.core.redlock", "quorumlock.events"),
        ("quorumlock.engines.redis.link", "quorumlock.runners.threads"),
        ("quorumlock.runners.threads", "quorumlock.engines.redis.link"),
        ("quorumlock.runners.threads", "quorumlock.sync.lock"),
        ("quorumlock.sync.lock", "quorumlock.aio.lock"),
        ("quorumlock.sync.lock", "quorumlock.engines.redis.engine"),
        ("quorumlock.cli.init", "quorumlock.core.redlock"),
        ("quorumlock.errors", "quorumlock.core.votes"),
        ("quorumlock.options", "quorumlock"),
    ],
)
def test_the_check_sees_an_import_that_points_upwards(module: str, imported: str) -> None:
    assert upward(module, {imported, "os", "collections.abc"})
