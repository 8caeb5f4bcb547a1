"""`quorumlock nodes`: how the nodes of a fleet are doing, also where the fleet grants nothing."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .looking import add_looking_options, print_json, shown, span, table
from .output import EX_OK, EX_UNAVAILABLE, spoken

if TYPE_CHECKING:
    from ..inspecting import NodeState

EPILOG = """\
example:
  quorumlock nodes --url redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3

CLOCK is by how much a node's clock is ahead of this machine's. Nothing is
changed on the nodes. `quorumlock doctor` looks for more.

exit codes:
  0   a majority of the nodes is ready
  69  it is not
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--samples", type=int, default=3, metavar="N", help="how often to ask each for the time (default: 3)"
    )
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from .settings import connect

    with connect(arguments) as locks:
        found = locks.nodes(arguments.samples)
    if arguments.json:
        print_json([dataclasses.asdict(node) for node in found])
    else:
        print(described(found))
    ready = sum(node.state == "ready" for node in found)
    return EX_OK if ready > len(found) // 2 else EX_UNAVAILABLE


def described(found: Sequence[NodeState]) -> str:
    """A row for each, and below it what is wrong."""
    titles = ("NODE", "STATE", "ROLE", "SERVER", "LATENCY", "CLOCK", "QUARANTINE")
    rows = [
        (
            node.node,
            node.state,
            node.role or "",
            " ".join(filter(None, (node.server, node.version))),
            "" if node.latency is None else f"{node.latency * 1000:.2f}ms",
            "" if node.clock_offset is None else ahead(node.clock_offset),
            span(node.quarantine) if node.quarantine else "",
        )
        for node in found
    ]
    reasons = [f"{shown(node.node)} {shown(spoken(node.detail))}" for node in found if node.detail]
    return "\n".join([table(titles, rows), *reasons])


def ahead(seconds: float) -> str:
    """+0.3ms, -1.2s, +2h05m."""
    if abs(seconds) < 1:
        return f"{round(seconds * 1000, 1) or 0.0:+.1f}ms"  # and never -0.0
    return f"{'-' if seconds < 0 else '+'}{span(abs(seconds))}"
