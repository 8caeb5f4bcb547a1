"""Every kind of lock on real servers while nodes and workers are killed and stopped; exit code 1: a promise broke.

Workers are processes, each with a kind of its own; some share a name: plain, fair and reentrant locks; readers and
writers; slots of a semaphore; several locks at once; candidates of an election. Each keeps a log of its leases (see
soak.py), and writes to a row that knows the highest fence it has seen. What is promised, for every resource:

  overlaps            nobody has it while another has it alone
  fence violations    in the order of time, fences of those who had it alone strictly grow, and who shares it has
                      one that is not lower than that of the last of them; the row never refuses a valid holder
  slots               no slot beyond the permits
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import quorumlock
from quorumlock.events import Event, Extended, Lost
from quorumlock.lab.servers import Servers
from scripts import soak
from scripts.soak import MAX_TTL, NODES, Log, Trouble, clock, connect, validity

WORKERS = 20
PERMITS = 2
KINDS = (
    "mutex", "fair", "reentrant", "read", "write", "read", "slot", "slot", "slot", "multi", "multi", "leader",
    "leader",
)  # fmt: skip
PROMISES = ("overlaps", "fence violations")
TABLE = """PRAGMA journal_mode = WAL; CREATE TABLE rows (resource PRIMARY KEY, fence);
    CREATE TABLE guard (holder); INSERT INTO guard VALUES (0)"""


def lock_of(locks: quorumlock.Locker, kind: str, draw: random.Random) -> quorumlock.Lock:
    ttl = draw.uniform(0.1, MAX_TTL)
    if kind == "read":
        return locks.read_write("doc").read(ttl=ttl)
    if kind == "write":
        return locks.lock("doc", ttl=ttl) if draw.random() < 0.3 else locks.read_write("doc").write(ttl=ttl)
    if kind == "slot":
        return locks.semaphore("pool", PERMITS, ttl=ttl)
    if kind == "multi":
        return locks.multi(draw.sample(["a", "b", "c"], 2), ttl=ttl)
    if kind == "leader":
        return locks.election("boss", ttl=ttl)._lock
    return locks.lock("plain", ttl=ttl, fair=kind == "fair", reentrant=kind == "reentrant")


def work(folder: Path, kind: str, seed: str) -> None:
    logging.getLogger("quorumlock").setLevel(logging.ERROR)  # quarantine is daily bread here
    draw = random.Random(seed)
    log = Log(folder / f"{os.getpid()}.log")
    rows = sqlite3.connect(folder / "row.sqlite", timeout=30, isolation_level=None)
    parent, current = os.getppid(), list[tuple[int, quorumlock.Lease]]()

    def told(event: Event) -> None:
        if isinstance(event, Extended):
            for number, lease in current:
                now, until = validity(lease)
                if until > now:  # else we were stopped meanwhile, and it ended some time ago
                    log("extended", number=number, until=until)
        elif isinstance(event, Lost):
            # Now, and not when the worker has noticed: what is left of the lock is given back before that.
            for number, lease in current:
                if not lease.held:
                    log(f"lost: {event.reason.value}", number=number, at=clock())

    with connect() as locks:
        locks.subscribe(told)
        locks._bus.relay = None  # where it happens: a loss is written down before what is left is freed
        for number in range(10**9):
            if os.getppid() != parent:
                return
            try:
                lease = lock_of(locks, kind, draw).acquire(timeout=2.0)
            except quorumlock.NotAcquired as error:
                log(type(error).__name__)
                continue
            current[:] = [(number, lease)]
            hold(number, lease, kind, rows, log, draw)
            current.clear()
            del lease  # what was abandoned is not renewed


def hold(
    number: int, lease: quorumlock.Lease, kind: str, rows: sqlite3.Connection, log: Log, draw: random.Random
) -> None:
    started_at, until = validity(lease)
    fences = lease.fences
    log("held", number=number, fences=fences, shared=kind == "read", at=started_at, until=until)
    rows.execute("UPDATE guard SET holder = ?", (os.getpid(),))
    if kind == "read":
        fences = {}  # who shares writes nothing: others may share it with a higher fence
    write(lease, fences, rows, log)
    try:
        time.sleep(draw.uniform(0, 0.02))
        if draw.random() < 0.2:
            lease.extend()
        if draw.random() < 0.2:
            lease.lost.wait(draw.uniform(0, 3 * lease.ttl))  # kept for longer than it lives
        write(lease, fences, rows, log)
        lease.check()
    except quorumlock.LeaseLost:
        pass  # it was told when it happened
    if draw.random() < 0.05:
        log("abandoned")
    else:
        log("released", number=number, at=clock())
        lease.release()


def write(lease: quorumlock.Lease, fences: dict[str, int], rows: sqlite3.Connection, log: Log) -> None:
    """Without looking at the lease first: the row has the last word."""
    for resource, fence in fences.items():
        rows.execute("INSERT OR IGNORE INTO rows VALUES (?, 0)", (resource,))
        changed = rows.execute("UPDATE rows SET fence = ?1 WHERE resource = ?2 AND fence <= ?1", (fence, resource))
        if not changed.rowcount:
            log("refused although valid" if lease.held else "stale write refused")


def judge(folder: Path) -> tuple[Counter[str], list[str]]:
    """Counts of everything in the logs, and a sentence for every violation."""
    counts, wrong = soak.judge(folder)
    found = [name.removeprefix("of ") for name in counts if "#" in name]
    beyond = [f"there is no slot {name}" for name in found if int(name.rpartition("#")[2]) >= PERMITS]
    counts["overlaps"] += len(beyond)
    return counts, wrong + beyond


def run(seconds: float, seed: int, workers: int) -> int:
    draw = random.Random(seed)
    print(f"{seconds:g} s, {NODES} nodes, {workers} workers of every kind, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as name, Servers(NODES) as nodes:
        rows = sqlite3.connect(Path(name) / "row.sqlite", isolation_level=None)
        rows.executescript(TABLE)
        with connect(nodes.urls) as locks:
            locks.init_fleet()
        kinds = itertools.cycle(KINDS)

        def start_worker() -> subprocess.Popen[bytes]:
            options = ["--worker", name, "--kind", next(kinds), "--seed", str(draw.getrandbits(32))]
            call = [sys.executable, "-m", "scripts.soak_family", *options]
            return subprocess.Popen(
                call, cwd=Path(__file__).parents[1], env=os.environ | {"QUORUMLOCK_URL": ",".join(nodes.urls)}
            )

        trouble = Trouble(nodes, rows, start_worker, workers)
        try:
            patience = time.monotonic() + 60
            while len(list(Path(name).glob("*.log"))) < workers and time.monotonic() < patience:
                time.sleep(0.05)  # a busy machine takes a while to start them all
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
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        work(chosen.worker, chosen.kind, str(chosen.seed))
        sys.exit()
    sys.exit(run(chosen.seconds, chosen.seed, chosen.workers))
