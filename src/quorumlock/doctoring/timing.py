"""Do nodes agree on the time, and do they answer in time?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..core.states import median
from ..engines.redis.visiting import Trip
from .facts import FleetFacts, on_nodes
from .findings import ERROR, WARNING, Check, Trouble

COMMON_TTL = 10.0
"""The default of `lock`: what clocks are measured by where nobody says more."""
HANDFUL = 1.0
"""Seconds by which clocks that something keeps in order do not differ."""

NTP = "let chrony or ntpd keep the clocks of all nodes, and slew them, not step (makestep only at boot)"


def offsets(fleet: FleetFacts) -> Iterator[Trouble]:
    """Between nodes: after a loss of memory, fences stay ordered only while clocks agree within max_ttl / 4."""
    known = sorted(
        (node.state.clock_offset, node.node) for node in fleet.answering if node.state.clock_offset is not None
    )
    if len(known) < 2:
        return
    (least, behind), (most, ahead) = known[0], known[-1]
    apart, limit = most - least, fleet.terms.max_ttl / 4
    if apart > min(limit / 2, HANDFUL):
        middle = known[len(known) // 2][0]
        culprit = ahead if most - middle >= middle - least else behind
        yield Trouble(
            ERROR if apart > limit else WARNING,
            culprit,
            f"is the odd one: the clocks of {ahead} and {behind} are {apart:.1f} s apart. After a loss of memory "
            f"fences stay ordered only if they agree within max_ttl / 4, {limit:g} s",
            NTP,
        )


def steps(fleet: FleetFacts) -> Iterator[Trouble]:
    """While it was looked at: locks expire by the wall clock of a node, so a step ends them early, or late."""
    for node in fleet.answering:
        found = [step for one, two in pairwise(node.trips) if (step := stepped(one, two))]
        if found:
            largest = max(found, key=abs)
            allowed = COMMON_TTL * fleet.drift + 0.002
            yield Trouble(
                ERROR if abs(largest) > allowed else WARNING,
                node.node,
                f"stepped its clock by {largest:+.3f} s while it was looked at (a lock of {COMMON_TTL:g} s bears "
                f"{allowed:.3f} s): forward ends locks early, back prolongs them",
                f"{NTP}; do not suspend or move a virtual machine that is a node",
            )


def stepped(one: Trip, two: Trip) -> float:
    """By how much the server's clock jumped between two answers; 0, if they may be late or early by that much."""
    jump = (two.server_at - one.server_at) - ((two.at + two.took / 2) - (one.at + one.took / 2))
    doubt = (one.took + two.took) / 2 + 0.005
    return jump if abs(jump) > doubt else 0.0


def latency(fleet: FleetFacts) -> Iterator[Trouble]:
    """A vote that comes later than node_timeout is not counted; with a short ttl, than a quarter of that."""
    timeout = min(fleet.node_timeout, fleet.terms.max_ttl / 4)
    for node in fleet.answering:
        if not node.trips:
            continue
        middle, slowest = _spread(node.trips)
        figures = f"answers in {_ms(middle)}, at the slowest in {_ms(slowest)}; node_timeout is {_ms(timeout)}"
        remedy = "look at its load, SLOWLOG and the network; or connect with a larger node_timeout"
        if middle > timeout:
            yield Trouble(ERROR, node.node, f"{figures}: most of its votes come too late", remedy)
        elif slowest > timeout:
            yield Trouble(WARNING, node.node, f"{figures}: some of its votes come too late", remedy)
        elif middle > timeout / 2:
            yield Trouble(WARNING, node.node, f"{figures}: there is little room", remedy)


def _spread(trips: Sequence[Trip]) -> tuple[float, float]:
    """The middle one, and the slowest but for the hundredth part: one hiccup of this machine says nothing."""
    took = sorted(trip.took for trip in trips)
    return median(took), took[max(0, len(took) - 1 - max(1, len(took) // 100))]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


TIMED = on_nodes(lambda node: node.trips)
CHECKS = (
    Check("clocks", offsets, "the clocks of the nodes agree", TIMED),
    Check("clock steps", steps, "no clock stepped while it was looked at", TIMED),
    Check("latency", latency, "all that answer do so well within node_timeout", TIMED),
)
