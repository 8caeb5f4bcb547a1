"""One chaos run: five nodes, clients of every lane, faults for so many seconds; then all is healed, and judged."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quorumlock
from quorumlock.lab.history import Verdict, check
from quorumlock.lab.history_lines import Entry, Recorder, read
from quorumlock.lab.servers import Server
from tests.live.stories.stage import Pulse

from . import canaries, clocks, network
from .clients import clock
from .crew import OURS, Crew, Lane
from .fleet import NODES, OPEN, fleet
from .nemesis import Nemesis
from .network import Network
from .ours import MAX_TTL, SETTINGS

HEALING = 4 * MAX_TTL
"""Quarantine, and three ttl: by then somebody should have got every lock;"""
LATE = 10.0
"""by then, on a machine that is busy with other things, it must have."""
PATIENCE = 20.0
ENOUGH = 10
"""Hand-overs of each lock, and elements of each set, without which a run says little."""
EVERY = (0.05, 0.4)
STALL = 3 * MAX_TTL


@dataclass
class Report:
    """What came of it."""

    seconds: float
    seed: int
    history: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    broken_for: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)
    errors: dict[str, Counter[str]] = field(default_factory=dict)
    """By name: what kinds, and how often."""
    skipped: list[str] = field(default_factory=list)
    recovered_in: dict[str, float] = field(default_factory=dict)
    """By name: from the end of the faults to the first lease."""
    stood_still: float = 0.0
    """The longest time for which this process did not run."""

    @property
    def reasons(self) -> set[str]:
        return {fault.reason for verdict in self.verdicts for fault in verdict.wrong}


def run(
    seconds: float, seed: int, lanes: Sequence[Lane] = OURS, until: str | None = None, briefly: bool = False
) -> Report:
    """Ends early when something is wrong for the reason `until`; `briefly`: when every fault has happened,
    and every lane has shown something.

    Moves this process into a network of its own where that is possible: best in a process of its own.
    """
    draw, report = random.Random(seed), Report(seconds, seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorumlock-chaos-")))
        wires = None
        if why := network.missing():
            report.skipped.append(f"partitions: {why}")
        else:
            wires = stack.enter_context(Network(NODES))
        library = None
        if why := clocks.missing():
            report.skipped.append(f"clock steps: {why}")
        else:
            library = clocks.build(folder)
        for line in report.skipped:
            print(f"skipped: {line}")
        reached = OPEN if wires is not None else ()
        nodes = stack.enter_context(fleet(library, reached))
        store = stack.enter_context(Server(arguments=reached))
        with quorumlock.connect([node.url for node in nodes], **SETTINGS | canaries.options()) as locks:
            locks.init_fleet()
        crew = Crew(lanes, nodes, store, wires, folder, draw, library)
        stack.callback(crew.close)
        record = Recorder(folder / "nemesis.jsonl", "nemesis")
        stack.callback(record.close)
        for lane in lanes:
            if lane.waived is not None:
                record("info", "no promise", clock(), list(lane.waived) or None, name=lane.name)
        ours = [lane.name for lane in lanes if lane.client == "quorumlock"]
        _await_everyone(folder, lanes)
        nemesis = Nemesis(nodes, crew, wires, ours, record, draw, briefly)
        pulse = stack.enter_context(Pulse())
        began_at = time.monotonic()

        def enough() -> bool:
            return briefly and nemesis.complete and not lacking(read(merged(folder).splitlines()), lanes)

        found = _cause(nemesis, seconds, draw, enough, lambda: _found(until, store, lanes, folder))
        report.seconds = time.monotonic() - began_at
        if not found:
            pulse.longest = 0.0
            healed_at = nemesis.heal()
            report.recovered_in = _recovery(folder, ours, healed_at, 0.0 if briefly else HEALING)
            report.stood_still = pulse.longest
        crew.close()
        _read_sets(store, lanes, folder)
        report.history = merged(folder)
        report.faults, report.broken_for = nemesis.counts, nemesis.broken_for
    entries = read(report.history.splitlines())
    order = [lane.name for lane in lanes]
    report.verdicts = sorted(check(entries), key=lambda verdict: order.index(verdict.name))
    for entry in entries:
        if isinstance(entry.value, dict) and "error" in entry.value:
            report.errors.setdefault(entry.name, Counter())[f"{entry.f}: {entry.value['error']}"] += 1
    return report


def _await_everyone(folder: Path, lanes: Sequence[Lane]) -> None:
    """Faults that come before the first client would be none."""
    end = time.monotonic() + 60
    while len(list(folder.glob("*.ready"))) < sum(lane.workers for lane in lanes):
        if time.monotonic() > end:
            raise RuntimeError("the clients did not start")
        time.sleep(0.01)


def _cause(
    nemesis: Nemesis, seconds: float, draw: random.Random, enough: Callable[[], bool], found: Callable[[], bool]
) -> bool:
    """Faults for so long, or less if it is `enough`. True if something was found before."""
    started_at = shown_at = looked_at = time.monotonic()
    while (now := time.monotonic()) < started_at + seconds and not enough():
        time.sleep(draw.uniform(*EVERY))
        nemesis.tick()
        if now > looked_at + 2:
            looked_at = now
            if found():
                return True
        if now > shown_at + 10:
            shown_at = now
            print(f"  {now - started_at:.0f} s, {nemesis.counts.total()} faults", flush=True)
    return False


def lacking(entries: Sequence[Entry], lanes: Sequence[Lane]) -> list[str]:
    """What there is too little of for a verdict: hand-overs between processes, elements, leases kept and lost."""
    wanted = []
    for lane in lanes:
        done = [entry for entry in entries if entry.name == lane.name and entry.type == "ok"]
        holders = [entry.process for entry in done if entry.f == "acquire"]
        if sum(one != other for one, other in itertools.pairwise(holders)) < ENOUGH:
            wanted.append(f"{lane.name}: hand-overs")
        if lane.lane != "mutex" and sum(entry.f == "add" for entry in done) < ENOUGH:
            wanted.append(f"{lane.name}: elements")
    seen = {entry.f for entry in entries if entry.type == "ok"}
    return wanted + [f"no {what}" for what in ("extend", "lost", "release") if what not in seen]


def _recovery(folder: Path, names: Sequence[str], healed_at: float, at_least: float) -> dict[str, float]:
    """When each lock was got after that. So long at least is waited, so that all goes on for a while."""
    pace = max(at_least, 1.0) / 4  # to look is to read all that was written
    while True:
        time.sleep(pace)
        first: dict[str, float] = {}
        for entry in _since(folder, healed_at):
            if (entry["type"], entry["f"]) == ("ok", "acquire") and (name := entry["name"]) in names:
                first[name] = min(first.get(name, PATIENCE), entry["time"] - healed_at)
        waited = clock() - healed_at
        if waited > PATIENCE or (waited > at_least and len(first) == len(names)):
            return first


def _since(folder: Path, at: float) -> Iterator[dict[str, Any]]:
    """What the workers have written after that."""
    for path in folder.glob("[0-9]*.jsonl"):
        for line in reversed(path.read_text().splitlines(keepends=True)):
            if not line.endswith("\n"):
                continue  # being written
            entry: dict[str, Any] = json.loads(line)
            if entry["time"] < at:
                break
            yield entry


def _found(reason: str | None, store: Server, lanes: Sequence[Lane], folder: Path) -> bool:
    """Is the history so far wrong for that reason?"""
    if reason is None:
        return False
    _read_sets(store, lanes, folder)
    verdicts = check(read(merged(folder).splitlines()))
    return any(fault.reason == reason for verdict in verdicts for fault in verdict.wrong)


def _read_sets(store: Server, lanes: Sequence[Lane], folder: Path) -> None:
    """The last word: what is in each set at the end."""
    for lane in lanes:
        if lane.lane == "mutex":
            continue
        record = Recorder(folder / "judge.jsonl", "judge", lane.name)
        record("invoke", "read", clock())
        record("ok", "read", clock(), _elements(store, f"set:{lane.name}"))
        record.close()


def _elements(store: Server, key: str) -> list[int]:
    from redis import Redis

    with Redis.from_url(store.url) as client:
        found: list[int] = json.loads(client.get(key) or b"[]")
        return found


def merged(folder: Path) -> str:
    """One history in the order of time. Whoever was killed in mid-line has left half of one."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines(keepends=True)]
    whole = [line for line in lines if line.endswith("\n")]
    return "".join(sorted(whole, key=lambda line: json.loads(line)["time"]))
