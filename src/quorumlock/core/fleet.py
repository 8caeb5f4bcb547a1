"""What a procedure knows of its fleet and its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import ConfigurationError, NoQuorum, Unsupported
from .effects import Round, Route, Steps
from .requests import Initialise, Join, Request, Survey
from .votes import Cause, Tally


@dataclass(slots=True)
class Fleet:
    """N nodes, a majority, and the clocks, randomness and tokens of one client.

    `clock` never jumps and counts suspend; `wall` is only ever a hint (the fence's candidate).
    """

    nodes: tuple[str, ...]
    clock: Callable[[], float]
    wall: Callable[[], float]
    random: Callable[[], float]
    new_token: Callable[[], str]
    node_timeout: float = 0.05
    drift: float = 0.01
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
        details = [answer.detail for answer in tally.answers if answer is not None and answer.cause is cause]
        if details:
            raise error("; ".join(dict.fromkeys(details)))


def initialise(fleet: Fleet, force: bool) -> Steps[None]:
    """Marks a new fleet as ready at once; see `Locker.init_fleet`."""
    everyone = len(fleet.nodes)
    survey = Tally(fleet.nodes, everyone, any_answer=True, patient=True)
    yield Round(fleet.to_all(Survey()), survey, 10 * fleet.node_timeout, Route(), everyone=True)
    if not survey.won:
        raise NoQuorum(f"init_fleet needs an answer of all {everyone} nodes: {survey.describe()}", survey)
    refuse_misfits(survey)
    marked = survey.caused(Cause.HELD)
    if marked and not force:
        named = "; ".join(f"{fleet.nodes[i]}: {answer.detail}" for i in marked if (answer := survey.answers[i]))
        raise ConfigurationError(
            f"{len(marked)} of {everyone} nodes already belong to a fleet ({named}). There is nothing to do if "
            "this fleet was initialised before; init_fleet(force=True) starts it anew, and every node then "
            "grants nothing until locks of the old fleet are over"
        )
    tally = Tally(fleet.nodes, everyone, patient=True)
    yield Round(fleet.to_all(Initialise(force)), tally, 10 * fleet.node_timeout, Route(), everyone=True)
    if not tally.won:
        raise NoQuorum(
            f"init_fleet did not reach every node: {tally.describe()}. The others are initialised; these will "
            "wait out their quarantine, or call init_fleet(force=True)",
            tally,
        )
