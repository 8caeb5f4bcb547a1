"""`python -m quorumlock.lab`: the simulator, from the command line."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Options

FUZZ = """\
Runs so many seeds: each is a town of clients and nodes in simulated time, with
faults, over the code that runs in production. The same seed is the same story.
"""

EPILOG = """\
examples:
  python -m quorumlock.lab fuzz --seeds 2000
  python -m quorumlock.lab fuzz --seeds 500 --scenario semaphore
  python -m quorumlock.lab fuzz --seeds 500 --scenario mutex/old-disk --jobs 2
  python -m quorumlock.lab fuzz --start 4711 --seeds 1 --keep 3,8 --log

exit codes: 0 all is as promised, 1 a seed failed, 2 a mistake in the call
"""
TOLD_MOST = 3
"""Failures whose stories are told."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return fuzz(arguments)
    except ValueError as error:
        print(f"quorumlock.lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m quorumlock.lab", description="Where locks are tried out.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser(
        "fuzz", help="many seeds in the simulator", description=FUZZ, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many (1000)")
    add.add_argument("--start", type=int, default=0, metavar="S", help="the first of them (0)")
    add.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (1)")
    add.add_argument(
        "--scenario",
        default="",
        metavar="S",
        help="a workload, or workload/fault, or /fault; else the seed decides",
    )
    add.add_argument("--keep", metavar="N,N", help="only these strokes of the faults, by number; none: no faults")
    add.add_argument("--markdown", action="store_true", help="tables for a document")
    add.add_argument("--log", action="store_true", help="print all that happened; for one seed")
    return parser


def fuzz(arguments: argparse.Namespace) -> int:
    from .fuzz import Bar
    from .fuzz import fuzz as run
    from .report import summarised

    for name, least in (("seeds", 1), ("start", 0), ("jobs", 1)):
        value = getattr(arguments, name)
        if value < least:
            raise ValueError(f"--{name} {value}: must be {least} or more")
    options = parse(arguments.scenario, arguments.keep)
    if arguments.log:
        return _log(arguments, options)
    bar = Bar(arguments.seeds)
    try:
        summary = run(arguments.start, arguments.seeds, options, arguments.jobs, bar.show)
    finally:
        bar.end()
    for line in summarised(summary, bar.seconds, arguments.jobs, markdown=arguments.markdown):
        print(line)
    for failure in summary.failures[:TOLD_MOST]:
        print()
        _tell(failure.seed, options)
    for failure in summary.failures[TOLD_MOST:]:
        print(f"\nseed {failure.seed}, {failure.workload}: {failure.what}")
    return 1 if summary.failures else 0


def parse(scenario: str, keep: str | None) -> Options:
    """The options that were asked for; raises ValueError with what there is instead."""
    from .faults import FAULTS
    from .run import Options as Chosen
    from .workloads import WORKLOADS

    workload, _, fault = scenario.partition("/")
    if workload:
        _known("workload", workload, WORKLOADS)
    if fault:
        _known("fault", fault, FAULTS)
    numbers: tuple[int, ...] | None = None
    if keep is not None:
        words = [] if keep == "none" else keep.split(",")
        if not all(word.isascii() and word.isdigit() for word in words):
            raise ValueError(f"--keep {keep}: must be numbers of strokes, such as 3,8, or none")
        numbers = tuple(int(word) for word in words)
    return Chosen(workload or None, fault or None, numbers)


def _known(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ValueError(f"there is no {what} {name!r}: {hint}There are {', '.join(known)}")


def _tell(seed: int, options: Options) -> None:
    from .fuzz import quiet
    from .report import story
    from .run import simulate
    from .shrink import shrink

    with quiet():
        verdict = simulate(seed, options)
        smaller, replay = shrink(verdict, options)
    for line in story(smaller, replay, len(verdict.strokes)):
        print(line)


def _log(arguments: argparse.Namespace, options: Options) -> int:
    from .fuzz import quiet
    from .run import simulate

    if arguments.seeds != 1:
        raise ValueError(f"--log --seeds {arguments.seeds}: the log is that of one seed")
    with quiet():
        verdict = simulate(arguments.start, options)
    for line in [*map(str, verdict.strokes), *verdict.lines, verdict.crash, f"digest {verdict.digest}"]:
        print(line)
    return 1 if verdict.failed else 0


if __name__ == "__main__":
    sys.exit(main())
