"""Real servers and real clients among faults, judged from their history; exit code 1 if a promise was broken.

Five nodes (Valkey and Redis in turn, with AOF), a resource, and client processes: some over loopback through
proxies, some in network namespaces. `tests/live/chaos/nemesis.py` draws the faults from the seed. Jepsen's lock
workloads: a mutex, and a set that is read under the lock, thought about for up to two ttl, and written back:
without a guard, with the keeper, and behind a guard. What is promised:

  overlaps        no two leases are valid at the same time; counted apart while a clock has just stepped
  fences          grow from holder to holder, and are unique
  lost            nothing that was added behind the guard is lost, whatever clocks do; without one, as it is
  progress        four seconds after the last fault somebody has got every lock

With --peers the same sets are kept under other libraries' locks, over the same nodes in the same run.
With --canary the clients are deliberately broken; it ends, with exit code 1, when that was noticed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import sys
from pathlib import Path

from bench.envs import NotInstalled, python_of, versions
from bench.peers import PACKAGES
from quorumlock.lab.history import ALL, SHOWN, Verdict, table
from tests.live.chaos import canaries
from tests.live.chaos.clients import PEERS
from tests.live.chaos.crew import OURS, Lane
from tests.live.chaos.run import LATE, STALL, Report, run


def peers() -> list[Lane]:
    lanes = []
    for name in PEERS:
        try:
            python = python_of(PACKAGES[name])
        except NotInstalled as why:
            print(f"skipped: {name}: {why}")
            continue
        print(f"peer: {versions(python, PACKAGES[name])}")
        lanes.append(Lane(name, "set", client=name, python=str(python), waived=()))
    return lanes


def stalls(verdict: Verdict) -> str:
    long = [gap for gap in verdict.gaps if gap > STALL]
    return f"{len(long)} (longest {max(verdict.gaps, default=0):.1f} s)"


def tell(report: Report) -> int:
    """Prints the tables; 1 if a promise was broken."""
    print(f"\n{report.seconds:.0f} s, of which {report.broken_for:.0f} s after a clock step; seed {report.seed}\n")
    for what, count in sorted(report.faults.items()):
        print(f"  {what:<36}{count:>6}")
    print(f"  {'faults':<36}{report.faults.total():>6}\n")
    print(table(report.verdicts))
    after = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.recovered_in.items())
    print(f"\n  got again after the faults: {after} (this process stood still for {report.stood_still:.2f} s)")
    for verdict in report.verdicts:
        errors = report.errors.get(verdict.name)
        told = ", ".join(f"{count} {what}" for what, count in errors.most_common(4)) if errors else "none"
        print(f"  {verdict.name:<14} stalls over {STALL:g} s: {stalls(verdict)}; errors: {told}")
    wrong = [f"{fault.reason} ({one.name}): {fault.text}" for one in report.verdicts for fault in one.wrong]
    wrong += [f"unexpected ({name}): {what}" for name, what in unexpected(report)]
    wrong += [f"too late ({name}): first got after {after:.1f} s" for name, after in late(report)]
    idle = [one.name for one in report.verdicts if not one.acquired and ALL not in one.waived]
    wrong += [f"nobody ever got {name!r}" for name in idle]
    print(*wrong[:SHOWN], sep="\n", end="\n" if wrong else "")
    print("FAILED: a promise was broken" if wrong else "ok")
    return 1 if wrong else 0


def late(report: Report) -> list[tuple[str, float]]:
    """Locks that nobody got in time after the faults."""
    return [(name, after) for name, after in report.recovered_in.items() if after > LATE]


def unexpected(report: Report) -> list[tuple[str, str]]:
    """Our own errors that no fault explains: a broken majority does explain NoQuorum."""
    ours = {lane.name for lane in OURS}
    found = [(name, what) for name, errors in report.errors.items() if name in ours for what in errors]
    return [(name, what) for name, what in found if what != "acquire: NoQuorum"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--briefly", action="store_true", help="end when each kind of fault has happened")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--lane", action="append", choices=[lane.name for lane in OURS], help="only this one")
    parser.add_argument("--canary", choices=sorted(canaries.CAUGHT_AS))
    parser.add_argument("--history", type=Path, help="keep it here")
    chosen = parser.parse_args()
    if not chosen.seconds > 0:
        parser.error("--seconds is to be above 0")
    os.environ[canaries.VARIABLE] = chosen.canary or ""
    ours = [lane for lane in OURS if not chosen.lane or lane.name in chosen.lane]
    if chosen.briefly:  # what takes longest is that they start
        ours = [dataclasses.replace(lane, workers=lane.workers - 1) for lane in ours]
    lanes = [*ours, *(peers() if chosen.peers else ())]
    until = canaries.CAUGHT_AS.get(chosen.canary)
    found = run(chosen.seconds, chosen.seed, lanes, until, chosen.briefly)
    if chosen.history:
        chosen.history.write_text(found.history)
    sys.exit(tell(found))
