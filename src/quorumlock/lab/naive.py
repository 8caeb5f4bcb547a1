"""The designs that stories warn about: ours with a protection switched off, or one of the old recipes.

Never use them: they are here to be seen failing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stage import Stage
    from .stage_players import Neighbour, Player


@dataclass(frozen=True, slots=True)
class Design:
    """How a lock is made. What is not said is as in the production core."""

    says: str
    guard: str = "full"
    quarantine: bool | None = None
    """None: as the story says."""
    drift: float = 0.01
    keep: bool = True
    """Is it renewed, if the story lets it?"""
    max_hold: float = 0.0
    """0: as the story says."""
    owner_bound: bool = True
    """Does renewal end with the worker that has the lock?"""
    wall: bool = False
    """Is validity measured with a clock that may be set?"""

    # Designs that are not of the core (`naive_players.py`).
    raw: str = ""
    """one: one node. many: a majority of several. session: a session that is kept alive."""
    expire_later: bool = False
    immortal: bool = False
    blind_delete: bool = False
    get_then_del: bool = False
    one_by_one: bool = False
    node_timeout: float = 0.05
    of_reachable: bool = False
    from_the_end: bool = False
    """Does validity begin when the last answer has come?"""
    undo_granted_only: bool = False
    retry: float = 0.2
    own_connection: bool = False
    """Does a release travel on another connection than what it undoes?"""
    stubborn: bool = False
    """Does renewal go on after a majority has said no?"""
    local_deadline: bool = False
    """Does a session's holder watch its own clock?"""


DESIGNS: dict[str, Design] = {
    "ours": Design("quorumlock"),
    "session-with-deadline": Design("A session with a local deadline, and zxids as fences", raw="session",
                                    local_deadline=True),
    # Ours, with something switched off.
    "no-guard": Design("Redlock without fencing", guard="none"),
    "guard-on-writes-only": Design("Fencing tokens that only writes show", guard="writes"),
    "no-quarantine": Design("Redlock without a delayed restart", quarantine=False, guard="none"),
    "no-drift-allowance": Design("Redlock without an allowance for drift", drift=0.0, guard="none"),
    "no-keeper": Design("A lock that nobody renews", raw="many", keep=False, guard="none"),
    "restless-keeper": Design("Renewal that outlives its owner", max_hold=1e7, owner_bound=False, guard="none"),
    "wall-clock": Design("Redlock that trusts the time of day", wall=True, guard="none"),
    # Old recipes on one node.
    "setnx-expire": Design("SETNX, then EXPIRE", raw="one", expire_later=True, guard="none"),
    "immortal": Design("SETNX without a TTL", raw="one", immortal=True, guard="none"),
    "blind-delete": Design("SET NX PX, released by DEL", raw="one", blind_delete=True, guard="none"),
    "get-then-del": Design("SET NX PX, released by GET, compare, DEL", raw="one", get_then_del=True, guard="none"),
    # Redlock as it is often written.
    "one-by-one": Design("Redlock, one node after another", raw="many", one_by_one=True, node_timeout=2.0,
                         guard="none"),
    "no-timeout": Design("Redlock without timeouts", raw="many", node_timeout=1e6, guard="none"),
    "of-the-reachable": Design("A majority of the nodes that answer", raw="many", of_reachable=True, guard="none"),
    "late-clock": Design("Redlock that counts from the last answer", raw="many", from_the_end=True,
                         node_timeout=30.0, one_by_one=True, guard="none"),
    "late-clock-at-once": Design("Redlock that counts from the last answer", raw="many", from_the_end=True,
                                 node_timeout=1e6, guard="none"),
    "undo-granted-only": Design("Releases only where it heard yes", raw="many", undo_granted_only=True,
                                guard="none"),
    "other-connection": Design("A release that overtakes its request", raw="many", own_connection=True,
                                guard="none"),
    "in-step": Design("Retries after a fixed delay", raw="many", guard="none"),
    "stubborn-renewal": Design("A watchdog that never stops trying", raw="many", stubborn=True, guard="none"),
    "plain-redlock": Design("Plain Redlock", raw="many", guard="none"),
    # ZooKeeper's way, simulated.
    "session": Design("A session that believes until it is told", raw="session", guard="none"),
}  # fmt: skip


def new_player(stage: Stage, client: Neighbour, name: str) -> Player:
    """A client of the stage's design."""
    from . import naive_players
    from .stage_core import CorePlayer

    kinds: dict[str, type[Player]] = {
        "": CorePlayer,
        "one": naive_players.OneNode,
        "many": naive_players.Many,
        "session": naive_players.Session,
    }
    return kinds[stage.design.raw](stage, client, name)
