"""`/metrics`: what the dashboard sees, for Prometheus, in its text format. Never the name of a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from .board import Board
    from .sampler import Sampler

PREFIX = "quorumlock_fleet_"
"""What clients tell of themselves (`observing/prometheus.py`) has other names: the two may meet in one database."""
FORMAT = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    async def told(self, request: Request) -> Response:
        board = await self._sampler.fresh(watching=False)
        return Response(written(board), 200, {"cache-control": "no-store"}, FORMAT)


def written(board: Board) -> str:
    """All gauges, each with a line about what it is."""
    waiting = sum(row["waiting"] for row in board.rows.values())
    gauges: list[tuple[str, str, list[tuple[str, float]]]] = [
        ("locks_held", "Locks that are held, shared or closed.", [("", len(board.rows))] if board.known else []),
        ("locks_waiting", "Clients that wait for a lock.", [("", waiting)] if board.known else []),
        ("sample_failed", "1 if the last look did not learn everything.", [("", int(bool(board.problem)))]),
        ("sample_timestamp_seconds", "When the fleet was last looked at.", [("", board.at)]),
        (
            "node_ready",
            "1 if a node answers and grants locks.",
            [(one["node"], int(one["state"] == "ready")) for one in board.nodes],
        ),
    ]
    for key, about in (
        ("latency", "How long a node takes to answer."),
        ("clock_offset", "The clock of a node, less the clock of the dashboard."),
        ("quarantine", "How long a node will grant nothing yet."),
    ):
        values = [(one["node"], one[key]) for one in board.nodes if one[key] is not None]
        gauges.append((f"node_{key}_seconds", about, values))
    return "".join(
        f"# HELP {PREFIX}{name} {about}\n# TYPE {PREFIX}{name} gauge\n"
        + "".join(f"{PREFIX}{name}{_label(label)} {value!r}\n" for label, value in values)
        for name, about, values in gauges
        if values
    )


def _label(node: str) -> str:
    if not node:
        return ""
    escaped = node.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{{node="{escaped}"}}'
