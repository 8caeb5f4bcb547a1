"""Server versions with bugs that matter to whoever lets scripts run, and versions that are too old.

What a version says is all that is known here: distributions mend bugs without changing the number, so that this
is never more than a warning. The table is not a list of all that is wrong with a version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .facts import FleetFacts, on_nodes
from .findings import ERROR, WARNING, Check, Trouble

OLDEST = {"redis": (6, 2), "valkey": (7, 2)}
"""CLIENT INFO, and rights to channels, came with Redis 6.2; Valkey began with 7.2."""

Version = tuple[int, ...]


class Advisory(NamedTuple):
    """A bug, and for each branch the first release that is free of it."""

    name: str
    what: str
    fixed: dict[str, tuple[Version, ...]]


ADVISORIES = (
    # redis.io/blog/security-advisory-cve-2025-49844; for the Redis releases docker-library/official-images pull
    # request 20011; for Valkey 8.1.4 issue 3473 of valkey-io/valkey (its older branches were not looked up).
    Advisory(
        "CVE-2025-49844",
        "a user who may run Lua can execute code on the server",
        {
            "redis": ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
            "valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4)),
        },
    ),
    # Pull request 13729 of redis/redis for 7.2.7, 1536 of valkey-io/valkey (other branches were not looked up).
    Advisory(
        "CVE-2024-46981",
        "a user who may run Lua may be able to execute code on the server",
        {"redis": ((6, 2, 17), (7, 2, 7), (7, 4, 2)), "valkey": ((7, 2, 8), (8, 0, 2))},
    ),
    # Pull requests 13582 and 13583 of redis/redis (Valkey's numbers were not looked up).
    Advisory(
        "CVE-2024-31449",
        "a user who may run Lua can overflow the stack of the server",
        {"redis": ((6, 2, 16), (7, 2, 6), (7, 4, 1)), "valkey": ((7, 2, 7), (8, 0, 1))},
    ),
)


def versions(fleet: FleetFacts) -> Iterator[Trouble]:
    for node in fleet.answering:
        kind, version = node.state.server, parsed(node.state.version)
        if kind not in OLDEST or not version:
            continue
        named = f"runs {kind.capitalize()} {node.state.version}"
        if version < OLDEST[kind]:
            least = ".".join(map(str, OLDEST[kind]))
            yield Trouble(ERROR, node.node, f"{named}: locks need {least} at least", "upgrade the server")
        elif bugs := open_bugs(kind, version):
            told = "; ".join(f"{bug.name}, {bug.what}" for bug in bugs)
            yield Trouble(
                WARNING,
                node.node,
                f"{named}, which as released has known bugs: {told}",
                f"upgrade to {repaired(kind, version, bugs)} or later, unless your distribution has mended them ("
                "it keeps the number); let nobody but your own programs reach the server",
            )


def parsed(text: str | None) -> Version:
    """7.0.15 as numbers; nothing, where it is none."""
    numbers: list[int] = []
    for part in (text or "").split("-")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers) if len(numbers) >= 2 else ()


def open_bugs(kind: str, version: Version) -> list[Advisory]:
    return [bug for bug in ADVISORIES if affected(version, bug.fixed[kind])]


def affected(version: Version, fixed: tuple[Version, ...]) -> bool:
    """A branch that is older than all that were repaired, or lies between them, was left as it was."""
    branch = next((one for one in fixed if one[:2] == version[:2]), None)
    return version < branch if branch else version[:2] < fixed[-1][:2]


def repaired(kind: str, version: Version, bugs: list[Advisory]) -> str:
    """The next release that has none of these bugs."""
    candidates = sorted({one for bug in bugs for one in bug.fixed[kind] if one > version})
    found = next(one for one in candidates if not any(affected(one, bug.fixed[kind]) for bug in bugs))
    return ".".join(map(str, found))


CHECKS = (
    Check(
        "version",
        versions,
        "no version with a dangerous bug that this doctor knows of",
        on_nodes(lambda node: node.state.version),
    ),
)
