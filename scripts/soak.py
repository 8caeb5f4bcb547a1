"""Many rounds on real servers while nodes and workers are killed and stopped; exit code 1 if a promise was broken.

Workers are processes that take one lock on five nodes, hold it, extend it or leave that to the keeper, give it back
or abandon it. Each keeps a log of its leases and of every renewal, by CLOCK_BOOTTIME, which is one clock for all
processes of a machine. What is promised:

  overlaps            no two leases are valid at the same time; an abandoned or killed holder's runs to its end
  fence violations    in the order of time, fences strictly grow; a row that knows the highest fence it has seen
                      never refuses a holder whose lease is valid

Mostly at most two nodes are in trouble. At times three restart in a row: then nobody gets the lock for a while.
A canary: with SOAK_WITHOUT_QUARANTINE=1 in the environment it must find overlaps.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import quorumlock
from quorumlock.events import Event, Extended, Lost
from quorumlock.lab.servers import Server, Servers
from tests.support.exclusion import Claim, violations

PROJECT = Path(__file__).parent.parent
NODES = 5
WORKERS = 5
MAX_TTL = 1.0
PROMISES = ("overlaps", "fence violations")
TABLE = "PRAGMA journal_mode = WAL; CREATE TABLE guard (fence, holder); INSERT INTO guard VALUES (0, 0)"
Start = Callable[[], subprocess.Popen[bytes]]


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def connect(urls: list[str] | None = None) -> quorumlock.Locker:
    quarantine = False if os.environ.get("SOAK_WITHOUT_QUARANTINE") else None
    return quorumlock.connect(urls, max_ttl=MAX_TTL, retry=quorumlock.Jitter(0.02), quarantine=quarantine)


class Log:
    """Lines that survive a SIGKILL: each is one write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, what: str, **more: float | dict[str, int]) -> None:
        os.write(self._file, json.dumps({"what": what, **more}).encode() + b"\n")


def work(folder: Path, seed: str) -> None:
    logging.getLogger("quorumlock").setLevel(logging.ERROR)  # quarantine is daily bread here
    draw = random.Random(seed)
    log = Log(folder / f"{os.getpid()}.log")
    rows = sqlite3.connect(folder / "row.sqlite", timeout=30, isolation_level=None)
    parent = os.getppid()
    held: weakref.WeakValueDictionary[int, quorumlock.Lease] = weakref.WeakValueDictionary()

    def told(event: Event) -> None:
        if isinstance(event, Extended) and (lease := held.get(event.fence)):
            now, until = validity(lease)
            if until > now:  # else we were stopped meanwhile, and it ended some time ago
                log("extended", number=event.fence, until=until)
        elif isinstance(event, Lost) and event.fence in held:
            # Now, and not when the worker has noticed: what is left of the lock is given back before that.
            log(f"lost: {event.reason.value}", number=event.fence, at=clock())

    with connect() as locks:
        locks.subscribe(told)
        locks._bus.relay = None  # where it happens: a loss is written down before what is left is freed
        while os.getppid() == parent:
            try:
                lease = locks.lock("soak", ttl=draw.uniform(0.1, MAX_TTL)).acquire(timeout=1.0)
            except quorumlock.NotAcquired as error:
                log(type(error).__name__)
            else:
                held[lease.fence] = lease
                hold(lease, rows, log, draw)
                del lease  # what was abandoned is not renewed


def hold(lease: quorumlock.Lease, rows: sqlite3.Connection, log: Log, draw: random.Random) -> None:
    started_at, until = validity(lease)
    log("held", number=lease.fence, fences=lease.fences, at=started_at, until=until)
    write(lease, rows, log)
    try:
        time.sleep(draw.uniform(0, 0.02))
        for _ in range(draw.choice([0, 0, 0, 0, 1, 3])):
            lease.extend()
            time.sleep(draw.uniform(0, lease.ttl / 6))
        if draw.random() < 0.2:
            lease.lost.wait(draw.uniform(0, 3 * lease.ttl))  # kept for longer than it lives
        write(lease, rows, log)
        lease.check()
    except quorumlock.LeaseLost:
        pass  # it was told when it happened
    if draw.random() < 0.05:
        log("abandoned")
    else:
        log("released", number=lease.fence, at=clock())
        lease.release()


def write(lease: quorumlock.Lease, rows: sqlite3.Connection, log: Log) -> None:
    """Without looking at the lease first: the row has the last word."""
    changed = "UPDATE guard SET fence = ?, holder = ? WHERE fence <= ?"
    if not rows.execute(changed, (lease.fence, os.getpid(), lease.fence)).rowcount:
        log("refused although valid" if lease.held else "stale write refused")


def validity(lease: quorumlock.Lease) -> tuple[float, float]:
    """From when to when, by the common clock. Read again if the process was held up between two readings."""
    while True:
        before, remaining, after = clock(), lease.remaining(), clock()
        if after - before < 0.0005:
            return before, before + remaining


class Trouble:
    """Kills and stops, and sets right again later."""

    def __init__(self, nodes: Servers, rows: sqlite3.Connection, start: Start, workers: int = WORKERS) -> None:
        self.counts: Counter[str] = Counter()
        self.nodes = nodes
        self.workers = [start() for _ in range(workers)]
        self._rows = rows
        self._start = start
        self._busy: dict[Server, float] = {}
        self._later: list[tuple[float, Callable[[], object]]] = []

    def tick(self, draw: random.Random) -> None:
        """Sets right what is due, and causes something new."""
        if any(worker.poll() is not None for worker in self.workers):
            raise SystemExit("a worker ended by itself")
        now = time.monotonic()
        due = [undo for at, undo in self._later if at <= now]
        self._later = [entry for entry in self._later if entry[0] > now]
        for undo in due:
            undo()
        self._busy = {node: until for node, until in self._busy.items() if until > now}
        faults = [self.hit_node, self.restart_majority, self.kill_worker, self.stop_worker]
        draw.choices(faults, [6, 1, 1, 3])[0](draw, now)

    def hit_node(self, draw: random.Random, now: float) -> None:
        if len(well := self._well()) > NODES // 2 + 1:
            node, undo_at = draw.choice(well), now + draw.uniform(0.01, 1.2)
            if killed := draw.random() < 0.5:
                node.kill()
            else:
                node.pause()
            self._later.append((undo_at, node.start if killed else node.resume))
            self._busy[node] = undo_at + (MAX_TTL + 0.5 if killed else 0.0)
            self.counts["node killed, restarted empty" if killed else "node stopped"] += 1

    def restart_majority(self, draw: random.Random, now: float) -> None:
        """While the holder sleeps: without quarantine they would lock for somebody else at once."""
        if len(well := self._well()) > NODES // 2:
            self.stop_worker(draw, now)
            for node in draw.sample(well, NODES // 2 + 1):
                node.restart()
                self._busy[node] = now + MAX_TTL
            self.counts["majority restarted empty"] += 1

    def kill_worker(self, draw: random.Random, now: float) -> None:
        index = self._worker(draw)
        self.workers[index].kill()
        self.workers[index].wait()
        self.workers[index] = self._start()
        self.counts["worker killed"] += 1

    def stop_worker(self, draw: random.Random, now: float) -> None:
        worker = self.workers[self._worker(draw)]
        worker.send_signal(signal.SIGSTOP)
        self._later.append((now + draw.uniform(0.01, 1.5), lambda: worker.send_signal(signal.SIGCONT)))
        self.counts["worker stopped"] += 1

    def _well(self) -> list[Server]:
        return [node for node in self.nodes.servers if node not in self._busy]

    def _worker(self, draw: random.Random) -> int:
        """One of them; in every other case the one that holds the lock."""
        (pid,) = self._rows.execute("SELECT holder FROM guard").fetchone()
        pids = [worker.pid for worker in self.workers]
        return pids.index(pid) if pid in pids and draw.random() < 0.5 else draw.randrange(len(pids))


def judge(folder: Path) -> tuple[Counter[str], list[str]]:
    """Counts of everything in the logs, and a sentence for every violation."""
    counts: Counter[str] = Counter()
    claims = list(claimed(folder, counts))
    wrong = ["a valid holder's write was refused"] * counts.pop("refused although valid", 0)
    found = violations(claims)
    counts["overlaps"] += len(found.overlaps)
    counts["fence violations"] += len(wrong) + len(found.disorders)
    return counts, wrong + found.overlaps + found.disorders


def claimed(folder: Path, counts: Counter[str]) -> Iterator[Claim]:
    """What the leases in the logs claimed, from their beginning to their end; counts all that is written there."""
    for path in folder.glob("*.log"):
        leases: dict[int, dict[str, Any]] = {}
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            what = entry.pop("what")
            counts["acquisitions" if what == "held" else what] += 1
            lease = leases.get(entry.get("number"))
            if what == "held":
                leases[entry["number"]] = entry
            elif lease is None:
                continue  # told before it was handed out: it was over, or is held from then on
            elif what == "extended" and not lease.get("over"):
                lease["until"] = entry["until"]
            elif what.startswith(("released", "lost")):
                lease |= {"until": min(lease["until"], entry["at"]), "over": True}
        for lease in leases.values():
            for resource, fence in lease["fences"].items():
                counts[f"of {resource}"] += 1
                yield Claim(resource, fence, lease["at"], lease["until"], lease.get("shared", False))


def soak(seconds: float, seed: int) -> int:
    draw = random.Random(seed)
    print(f"{seconds:g} s, {NODES} nodes, {WORKERS} workers, max_ttl {MAX_TTL:g} s, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as name, Servers(NODES) as nodes:
        rows = sqlite3.connect(Path(name) / "row.sqlite", isolation_level=None)
        rows.executescript(TABLE)
        with connect(nodes.urls) as locks:
            locks.init_fleet()

        def start_worker() -> subprocess.Popen[bytes]:
            call = [sys.executable, "-m", "scripts.soak", "--worker", name, "--seed", str(draw.getrandbits(32))]
            return subprocess.Popen(call, cwd=PROJECT, env=os.environ | {"QUORUMLOCK_URL": ",".join(nodes.urls)})

        trouble = Trouble(nodes, rows, start_worker)
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(draw.uniform(0.05, 0.5))
                trouble.tick(draw)
        finally:
            for worker in trouble.workers:
                worker.kill()
                worker.wait()
            rows.close()
        counts, wrong = judge(Path(name))
    counts |= trouble.counts
    for what in (*sorted(set(counts) - set(PROMISES)), *PROMISES):
        print(f"  {what:<32}{counts[what]:>8}")
    print(*wrong[:10], sep="\n", end="\n" if wrong else "")
    return 1 if wrong or not counts["acquisitions"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        work(chosen.worker, str(chosen.seed))
    sys.exit(soak(chosen.seconds, chosen.seed))
