"""Who breaks things: faults drawn from a seed, each undone after a while, and all of them told to the history.

At most two of the five nodes are in trouble at a time, but for the faults that are meant for a majority. In most of
the run no clock steps; in the rest of it clocks step, and nodes are otherwise left alone: `conditions.py` says why.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence

from quorumlock.lab.history_lines import Recorder

from .clients import clock
from .conditions import SMALL, WITHIN, Conditions
from .crew import Crew
from .deck import Deck, Fault
from .fleet import NODES, Node
from .network import Network
from .ours import MAX_TTL

MAJORITY = NODES // 2 + 1
CYCLE = 20.0
CALM_CLOCKS = 13.0
"""Of each cycle, so many seconds without a step."""
KEPT = 0.15
"""How often a copy of somebody's disk is made, to come back with later."""
AHEAD, BEHIND = (MAX_TTL / 2, 2.0), (-5.0, -MAX_TTL / 2)


class Nemesis:
    def __init__(
        self, nodes: list[Node], crew: Crew, network: Network | None, names: Sequence[str], record: Recorder,
        draw: random.Random, briefly: bool = False,
    ) -> None:  # fmt: skip
        """`briefly`: clocks step as soon as every other fault has happened, and not after a fixed time."""
        self._nodes, self._crew, self._network = nodes, crew, network
        self._briefly = briefly
        self._record, self._draw = record, draw
        self._busy: dict[Node, float] = {}
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._cuts: set[tuple[int, int]] = set()
        self._conditions = Conditions(nodes, names, self._tell)
        self._now = self._started_at = time.monotonic()
        self._deck = Deck(draw, clock)
        anytime: list[Fault] = [
            ("client killed", self._kill_client),
            *[("client stopped", self._stop_client)] * 2,
            ("connections cut", self._cut),
            ("answer dropped", self._drop_answer),
        ]
        if crew.clocks:
            anytime.append(("client's clock step", self._step_client))
        if network:
            anytime += [
                ("partition, both ways", lambda: self._partition(True, True)),
                ("partition, requests lost", lambda: self._partition(True, False)),
                ("partition, answers lost", lambda: self._partition(False, True)),
            ]
        self._calm: list[Fault] = [
            *anytime,
            ("node killed, back empty", lambda: self._restart("empty")),
            ("node killed, back with its AOF", lambda: self._restart("aof")),
            ("node killed, back with an old disk", lambda: self._restart("old")),
            ("majority restarted empty", self._restart_majority),
            ("node stopped", self._stop_node),
            ("connections refused", self._refuse),
            ("answers delayed", self._delay),
            ("connections half open", self._half_open),
            ("connections silent", self._silence),
        ]
        self._stepping = self._calm
        if nodes[0].clock:
            self._calm.append(("clock step within the allowance", lambda: self._step(WITHIN)))
            steps = [("clock step, small", lambda: self._step(SMALL)), *[("clock step, large", self._step_far)] * 4]
            self._stepping = [*anytime, *steps]

    @property
    def counts(self) -> Counter[str]:
        return self._deck.counts

    @property
    def complete(self) -> bool:
        """Whether every kind of fault has happened."""
        return self._seen(self._calm) and self._seen(self._stepping)

    def _seen(self, faults: Sequence[Fault]) -> bool:
        return self.counts.keys() >= {what for what, _ in faults}

    @property
    def broken_for(self) -> float:
        """Seconds in which an assumption did not hold."""
        return self._conditions.broken_for

    def tick(self) -> None:
        """Sets right what is due, and causes something new."""
        self._crew.check()
        self._now = time.monotonic()
        self._undo(self._now)
        self._sweep()
        if (node := self._one()) and self._draw.random() < KEPT:
            node.keep_disk()
        if done := self._deck.turn(self._calm if self._clocks_are_left_alone() else self._stepping):
            self._record("info", *done)

    def _clocks_are_left_alone(self) -> bool:
        if self._briefly:
            return not self._seen(self._calm)
        return (time.monotonic() - self._started_at) % CYCLE < CALM_CLOCKS

    def heal(self) -> float:
        """Everything is set right; since when."""
        self._undo(float("inf"))
        self._set_right()
        self._tell("healed")
        return clock()

    # What is left in order, and what may be done.

    def _well(self) -> list[Node]:
        """By the time up to which all is undone: what is due since then still stands."""
        return [node for node in self._nodes if self._busy.get(node, 0.0) <= self._now]

    def _one(self) -> Node | None:
        well = self._well()
        return self._draw.choice(well) if len(well) > MAJORITY else None

    def _for(self, node: Node, seconds: float, undo: Callable[[], object], rest: float = 0.0) -> None:
        """In trouble for so long, and not touched for a while after."""
        now = time.monotonic()
        self._later.append((now + seconds, undo))
        self._busy[node] = now + seconds + rest

    def _undo(self, now: float) -> None:
        due = [undo for at, undo in self._later if at <= now]
        self._later = [entry for entry in self._later if entry[0] > now]
        for undo in due:
            undo()

    def _sweep(self) -> None:
        """Connections that are over, with both their threads, are closed: a long run makes thousands."""
        for node in self._nodes:
            for line in [one for one in node.proxy.lines if not any(thread.is_alive() for thread in one.threads)]:
                line.close()
                node.proxy.lines.remove(line)

    def _tell(self, what: str, value: object = None) -> None:
        self._record("info", what, clock(), value)

    # Memory.

    def _back(self, node: Node, how: str) -> None:
        if how == "empty":
            node.wipe()
        elif how == "old":
            node.put_back()
        node.start()
        self._conditions.memory_is_lost()

    def _restart(self, how: str) -> bool:
        node = self._one()
        if node is None or not self._conditions.memory_may_go():
            return False
        if how == "old" and node.old is None:
            return False
        node.kill()
        self._conditions.memory_is_lost()
        self._for(node, self._draw.uniform(0.01, 1.0), lambda: self._back(node, how), MAX_TTL + 0.2)
        return True

    def _restart_majority(self) -> bool:
        """While somebody sleeps: without quarantine they would lock for another at once."""
        well = self._well()
        if len(well) < MAJORITY or not self._conditions.memory_may_go():
            return False
        self._stop_client()
        for node in self._draw.sample(well, MAJORITY):
            node.kill()
            self._back(node, "empty")
            self._busy[node] = time.monotonic() + MAX_TTL + 0.2
        return True

    # Nodes and clients that stand still.

    def _stop_node(self) -> bool:
        if (node := self._one()) is None:
            return False
        node.pause()
        self._for(node, self._draw.uniform(0.02, 1.2), node.resume)
        return True

    def _kill_client(self) -> bool:
        self._crew.replace(self._draw.randrange(len(self._crew.workers)))
        return True

    def _stop_client(self) -> bool:
        """For up to three ttl."""
        worker = self._draw.choice(self._crew.workers)
        worker.send_signal(signal.SIGSTOP)
        self._later.append((time.monotonic() + self._draw.uniform(0.05, 3 * MAX_TTL), lambda: _go_on(worker)))
        return True

    # The network.

    def _cut(self) -> bool:
        self._draw.choice(self._nodes).proxy.cut()
        return True

    def _drop_answer(self) -> bool:
        for node in self._draw.sample(self._nodes, self._draw.randint(1, NODES)):
            node.proxy.lose_next_answer = True
        return True

    def _refuse(self) -> bool:
        if (node := self._one()) is None:
            return False
        proxy = node.proxy
        proxy.refusing = True
        proxy.cut()
        self._for(node, self._draw.uniform(0.1, 1.0), lambda: setattr(proxy, "refusing", False))
        return True

    def _delay(self) -> bool:
        if (node := self._one()) is None:
            return False
        proxy = node.proxy
        proxy.delay = self._draw.uniform(0.005, 0.2)
        self._for(node, self._draw.uniform(0.2, 1.5), lambda: setattr(proxy, "delay", 0.0))
        return True

    def _half_open(self) -> bool:
        """The clients see their connections end; the server hears of it only later."""
        if (node := self._one()) is None:
            return False
        proxy = node.proxy
        proxy.half_open = True
        proxy.cut_clients()

        def end() -> None:
            proxy.half_open = False
            for line in proxy.lines:
                if line.left:
                    line.cut()

        self._for(node, self._draw.uniform(0.2, 1.0), end)
        return True

    def _silence(self) -> bool:
        """Nothing passes on the connections that stand, until it all does, late."""
        if (node := self._one()) is None:
            return False
        node.proxy.go_silent()
        self._for(node, self._draw.uniform(0.1, 1.5), node.proxy.let_go)
        return True

    def _partition(self, requests: bool, answers: bool) -> bool:
        """One side does not reach up to three nodes: it may lose its majority, others keep theirs."""
        network = self._network
        assert network is not None
        side = self._draw.randrange(len(network.sides))
        if any(cut[0] == side for cut in self._cuts):
            return False
        cuts = [(side, node) for node in self._draw.sample(range(NODES), self._draw.randint(1, MAJORITY))]
        for cut in cuts:
            network.cut(*cut, requests, answers)
        self._cuts.update(cuts)

        def mend() -> None:
            for cut in cuts:
                network.mend(*cut, requests, answers)
            self._cuts.difference_update(cuts)

        self._later.append((time.monotonic() + self._draw.uniform(0.2, 2.5), mend))
        return True

    # Clocks.

    def _step(self, most: float) -> bool:
        """One to three nodes, of which none is far off, and none will be."""
        well = self._well()
        if len(well) < MAJORITY or not self._conditions.within(most):
            return False
        chosen = self._draw.sample(well, self._draw.randint(1, MAJORITY))
        self._conditions.set_clocks({node: self._draw.uniform(-most, most) for node in chosen})
        if most > WITHIN:
            self._later.append((time.monotonic() + self._draw.uniform(0.5, 2), self._set_right))
        return True

    def _step_far(self) -> bool:
        steady = len(self._well()) == NODES and self._conditions.within(SMALL)
        if not steady or not self._conditions.clocks_may_go_far():
            return False
        chosen = self._draw.sample(self._nodes, self._draw.randint(1, MAJORITY))
        span = self._draw.choice([AHEAD, BEHIND])
        self._conditions.set_clocks({node: self._draw.uniform(*span) for node in chosen})
        self._later.append((time.monotonic() + self._draw.uniform(0.5, 1.5), self._set_right))
        return True

    def _step_client(self) -> bool:
        """No lease relies on the wall clock of a client: nothing is excused by it."""
        self._draw.choice(self._crew.clocks).offset = self._draw.uniform(-10, 10)
        return True

    def _set_right(self) -> None:
        self._conditions.set_clocks(dict.fromkeys(self._nodes, 0.0))


def _go_on(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is None:
        worker.send_signal(signal.SIGCONT)
