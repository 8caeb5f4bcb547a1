"""What a procedure knows of its fleet and its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ConfigurationError, NoQuorum, Unsupported
from .effects import Round, Route, Steps
from .requests import Close, Initialise, Join, Request, Survey
from .votes import Cause, Tally

if TYPE_CHECKING:
    from .owed import Debt


@dataclass(slots=True)
class Fleet:
    """N nodes, a majority, and the clocks, randomness and tokens of one client.

    `clock` never jumps and counts suspend; `wall` is only ever a hint (the fence's candidate).
    """

    nodes: tuple[str, ...]
    clock: Callable[[], float]
    wall: Callable[[], float]
    random: Callable[[], float]
    new_token: Callable[[str], str]
    """Given how it is to begin."""
    node_timeout: float = 0.05
    drift: float = 0.01
    owe: Callable[[Debt], object] | None = None
    """Remembers a release that not every node has answered; None: nobody sends it again."""
    majority: int = field(init=False)
    mustered: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.majority = len(self.nodes) // 2 + 1

    def timeout(self, ttl: float) -> float:
        """How long to wait for a node: at most a quarter of the ttl."""
        return min(self.node_timeout, ttl / 4)

    def tally(self, needed: int | None = None, *, any_answer: bool = False, asked: int | None = None) -> Tally:
        return Tally(self.nodes, needed or self.majority, any_answer=any_answer, asked=asked)

    def to_all(self, request: Request) -> list[Request | None]:
        return [request] * len(self.nodes)


def muster(fleet: Fleet) -> Steps[Tally | None]:
    """Meets every node once, before the first request of a client; gives a tally if no majority came.

    Afterwards a failing minority is only data. Here, at the start, one node that cannot belong to the fleet
    (a replica, a second address of another node, a node of another fleet) is the caller's mistake.
    """
    if fleet.mustered:
        return None
    tally = Tally(fleet.nodes, fleet.majority, any_answer=True, patient=True)
    yield Round(fleet.to_all(Join()), tally, fleet.node_timeout, Route(), everyone=True)
    refuse_misfits(tally)
    if not tally.won:
        return tally
    fleet.mustered = True
    return None


def refuse_misfits(tally: Tally) -> None:
    """Raises for nodes that cannot belong to this client's fleet."""
    for cause, error in ((Cause.UNSUPPORTED, Unsupported), (Cause.MISFIT, ConfigurationError)):
        told: dict[str, list[str]] = {}
        for node, answer in zip(tally.nodes, tally.answers, strict=True):
            if answer is not None and answer.cause is cause:
                told.setdefault(answer.detail.removeprefix(f"{node} "), []).append(node)
        if told:
            raise error("; ".join(f"{', '.join(nodes)} {why}" for why, nodes in told.items()))


def initialise(fleet: Fleet, force: bool) -> Steps[float]:
    """Makes a fleet ready; gives the seconds until it grants locks. See `Locker.init_fleet`.

    A fleet that is in use is changed in two rounds: all nodes are closed before the first of them begins to wait
    for the end of old locks. A node that began earlier would grant while clients of the old fleet, on nodes that
    had not heard of the change, still extend. A change that ends half way leaves nodes that grant nothing.
    """
    survey = Tally(fleet.nodes, len(fleet.nodes), any_answer=True, patient=True)
    yield from _ask_all(fleet, Survey(), survey, "init_fleet needs an answer of all nodes", "nothing was changed")
    refuse_misfits(survey)
    wait_ms = 0
    if not force:
        _refuse_used(fleet, survey)
    else:
        ready = _ready(survey)
        _refuse_fleets_that_go_on(survey, ready)
        closed = Tally(fleet.nodes, len(fleet.nodes), patient=True)
        rest = "The others grant nothing until init_fleet(force=True) has reached them all: repeat it"
        yield from _ask_all(fleet, Close(), closed, "init_fleet did not reach every node", rest)
        _refuse_fleets_that_go_on(closed, ready, CLOSED_NOW)  # nodes may have changed hands since the survey
        wait_ms = _longest_wait(closed)
    tally = Tally(fleet.nodes, len(fleet.nodes), patient=True)
    rest = "These grant nothing until it is repeated" if force else "These will wait out their quarantine"
    yield from _ask_all(fleet, Initialise(force, wait_ms), tally, "init_fleet did not reach every node", rest)
    return _longest_wait(tally) / 1000


def _longest_wait(tally: Tally) -> int:
    return max((answer.wait_ms for answer in tally.answers if answer is not None), default=0)


def _ask_all(fleet: Fleet, request: Request, tally: Tally, what: str, rest: str) -> Steps[None]:
    """A round that every node has to take part in."""
    yield Round(fleet.to_all(request), tally, 10 * fleet.node_timeout, Route(), everyone=True)
    if not tally.won:
        refuse_misfits(tally)
        raise NoQuorum(f"{what}: {tally.describe()}. {rest}", tally)


def _refuse_used(fleet: Fleet, survey: Tally) -> None:
    """A fleet that is ready at once must be new: locks of an old one may be alive."""
    marked = survey.caused(Cause.HELD)
    if marked:
        named = "; ".join(f"{fleet.nodes[i]}: {answer.detail}" for i in marked if (answer := survey.answers[i]))
        raise ConfigurationError(
            f"{len(marked)} of {len(fleet.nodes)} nodes already belong to a fleet ({named}). There is nothing to "
            "do if this fleet was initialised before; init_fleet(force=True) starts it anew, and every node then "
            "grants nothing until locks of the old fleet are over"
        )


def _ready(survey: Tally) -> int:
    """How many nodes an earlier attempt at this change has brought to its end."""
    members = [answer.member for answer in survey.answers if answer is not None and answer.member is not None]
    return sum(member.mine and not member.closed for member in members)


CLOSED_NOW = (
    ". Another change came between. The nodes of this list are closed now: delete that key on them, and then "
    "repeat the change that is to be made"
)


def _refuse_fleets_that_go_on(survey: Tally, ready: int, more: str = "") -> None:
    """Taking nodes from a fleet must leave it without a majority: else it would grant beside the new one."""
    members = [answer.member for answer in survey.answers if answer is not None and answer.member is not None]
    for name, nodes, mine, closed in members:
        if mine and not closed:  # of a fleet with a name the others may be elsewhere; those that are closed are not
            taken = sum(member.mine for member in members)
        else:
            taken = sum(member[:2] == (name, nodes) for member in members) + (ready if closed else 0)
        if name and nodes - taken > nodes // 2:
            raise ConfigurationError(
                f"{taken} of these nodes belong to the fleet {name} of {nodes} nodes, whose other {nodes - taken} "
                f"would go on granting locks: keep at least {nodes - nodes // 2} of its nodes in the new list, and "
                "replace the rest in a second step. If that fleet is long gone, delete the key ql:node (with your "
                f"prefix in front) on the nodes that were its{more}"
            )
