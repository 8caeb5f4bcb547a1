"""What onlookers cost: one acquire and release on `memory://`, with nobody listening and with each adapter.

    python -m bench.events                          # this tree
    python -m bench.events --before ../other/src    # and another one beside it, with nobody listening

`memory://` has no network and no disk, so what is measured is our own Python: on servers the same microseconds are
a smaller part. It is time of the processor, of the thread that locks. Processes of all variants alternate, and of
each the quickest round counts: on a busy machine the others measure the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.parent / "src"
VARIANTS = ["nobody", "callback", "logging", "prometheus", "opentelemetry"]

WORKER = """
import gc, logging, sys, time
import quorumlock
variant, rounds, pairs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
locks = quorumlock.connect("memory://")
if variant == "callback":
    locks.subscribe(lambda event: None)
elif variant == "logging":
    from quorumlock.observing import log_events
    logging.basicConfig(level=logging.WARNING)
    log_events(locks)
elif variant == "prometheus":
    from prometheus_client import CollectorRegistry
    from quorumlock.observing import export_metrics
    export_metrics(locks, CollectorRegistry())
elif variant == "opentelemetry":
    from quorumlock.observing import trace_locks
    trace_locks(locks)
lock = locks.lock("a")
def run(count):
    started = time.thread_time()
    for _ in range(count):
        lock.acquire().release()
    return (time.thread_time() - started) / count * 1e6
run(pairs)
gc.disable()
print(*(run(pairs) for _ in range(rounds)))
"""


def measure(source: Path, variant: str, rounds: int, pairs: int) -> list[float]:
    """Microseconds for a pair, of each round of one process."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, variant, str(rounds), str(pairs)],
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.events", description="What onlookers cost.")
    parser.add_argument("--before", type=Path, metavar="SRC", help="the src folder of another tree")
    parser.add_argument("--processes", type=int, default=9, help="of each variant; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers there")
    options = parser.parse_args()
    subjects = [(name, HERE, name) for name in VARIANTS]
    if options.before:
        subjects.insert(0, ("before", options.before.resolve(), "nobody"))
    raw: dict[str, list[float]] = {name: [] for name, _, _ in subjects}
    for turn in range(options.processes):
        for name, source, variant in subjects if turn % 2 else subjects[::-1]:
            raw[name].append(min(measure(source, variant, 60, 50)))
    base = statistics.median(raw[subjects[0][0]])
    for name, found in raw.items():
        middle = statistics.median(found)
        print(f"{name:14} {middle:8.1f} µs   {middle / base:.3f}   ({min(found):.1f} to {max(found):.1f})")
    if options.json:
        options.json.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
