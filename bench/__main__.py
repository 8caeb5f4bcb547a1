"""`python -m bench pair | faults | keep | handover | idle | journal | start | engines [--quick] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from quorumlock.lab.servers import kinds

from . import engines, faults, handover, idle, journal, keep, pair, start
from .machine import describe


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures quorumlock on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("pair", "one acquire + release, against floors and peers; server cost; import time"),
        ("faults", "the same with 1 and 2 of 5 nodes hung or dead, against healthy"),
        ("keep", "1 to 100,000 leases that are renewed: memory, threads, renewals, acquires beside them"),
        ("handover", "from a release to the next holder: latency, owner changes per second, commands, spread"),
        ("idle", "what 50 who wait for a held lock make the servers do"),
        ("journal", "pairs per second with and without a journal"),
        ("start", "how long commands take from start to end"),
        ("engines", "a pair, a hand-over and locks per second on every engine that is here"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--quick", action="store_true", help="fewer rounds, the same rows")
        command.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers there")
        command.add_argument("--server", choices=kinds(), default=kinds()[0], help="default: %(default)s")
    for name in ("pair", "handover", "idle"):
        commands.choices[name].add_argument("--no-peers", action="store_true", help="ours and the floors alone")
    options = parser.parse_args()

    machine = describe(options.server)
    print("\n".join(f"{key}: {value}" for key, value in machine.items()), flush=True)
    if options.command == "pair":
        raw = pair.run(options.server, quick=options.quick, with_peers=not options.no_peers)
    elif options.command == "journal":
        raw = journal.run(options.server, quick=options.quick)
    elif options.command == "start":
        raw = start.run(quick=options.quick)
    elif options.command == "engines":
        raw = engines.run(options.server, quick=options.quick)
    elif options.command == "keep":
        raw = keep.run(options.server, quick=options.quick)
    elif options.command == "handover":
        raw = handover.run(options.server, quick=options.quick, with_peers=not options.no_peers)
    elif options.command == "idle":
        raw = idle.run(options.server, quick=options.quick, with_peers=not options.no_peers)
    else:
        raw = faults.run(options.server, quick=options.quick)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, **raw}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
