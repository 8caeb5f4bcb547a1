"""Many rounds of the stories of lost memory (`tests/live/stories`) on real servers; exit code 1 if any went wrong.

  restarted-empty     a node is killed and comes back empty inside a lease
  torn-aof            the same with AOF everysec, and the end of its AOF cut off
  old-disk            a node comes back with a lease that was released or broken since
  promoted-in-place   a replica, or the demoted primary, is promoted before the lock came to it (mostly N = 1)
  promoted-unseen     the same between two requests of a client that stays connected
  all-restarted       all nodes restart together: nobody for a max_ttl, then all is well
  rolling             five nodes restart empty, one after another, under a lease that is kept
  rolling-faster      the same, faster than quarantine, as long as a majority has votes
  forced-open         a break, or a DEL on a majority, is not undone by the keeper

No two leases may overlap, fences must grow, a kept lease must be kept. Timing is drawn from the seed. A round that
a busy machine spoiled says nothing, is counted as void, and is played again.
The test of the test: with --without-quarantine each of the first six must show overlaps, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.sharedctypes import Synchronized

from quorumlock.lab import servers
from quorumlock.lab.servers import kinds
from tests.live.stories import HEALING, QUARANTINE, STORIES
from tests.live.stories.running import Summary, run
from tests.live.stories.stage import MAX_TTL, quiet

AT_A_TIME = 8
"""Rounds mostly sleep: a quarantine takes a second, whatever the machine."""
AT_A_TIME_HEALING = 4
SHOW_EVERY = 5.0
COLUMNS = ("story", "rounds", "void", "leases", "refusals", "overlaps", "faults", "seconds")


def prepare(number: Synchronized[int]) -> None:
    """In each process: ports of its own, or one would take those of a server that another is just restarting."""
    quiet()
    with number:
        mine = number.value
        number.value += 1
    servers._given.update(port for port in range(2**16) if port % AT_A_TIME != mine % AT_A_TIME)


def shown(rounds: int) -> Callable[[Summary], bool]:
    """Prints how far a story is, now and then."""
    last = time.monotonic()

    def show(summary: Summary) -> bool:
        nonlocal last
        if time.monotonic() - last > SHOW_EVERY:
            last = time.monotonic()
            print(f"  {summary.story} {summary.rounds}/{rounds}, {summary.overlaps} overlaps", flush=True)
        return False

    return show


def table(summaries: list[Summary], took: dict[str, float]) -> str:
    rows = [
        (one.story, one.rounds, len(one.voids), one.leases, one.refusals, one.overlaps, len(one.faults))
        for one in summaries
    ]
    lines = ["{:<20}{:>8}{:>8}{:>8}{:>10}{:>10}{:>8}{:>9}".format(*COLUMNS)]
    lines += ["{:<20}{:>8}{:>8}{:>8}{:>10}{:>10}{:>8}".format(*row) + f"{took[row[0]]:>9.0f}" for row in rows]
    return "\n".join(lines)


def verdict(summaries: list[Summary], quarantine: bool) -> int:
    """1 if anything went wrong. Without quarantine that is how it should be, in every story."""
    faults = [fault for summary in summaries for fault in summary.faults]
    print(*faults[:10], sep="\n", end="\n" if faults else "")
    if not quarantine:
        blind = [summary.story for summary in summaries if not summary.overlaps]
        print(f"no overlap in {', '.join(blind)}: no test" if blind else "overlaps in every story, as expected")
    return 1 if faults or not summaries else 0


def main(chosen: argparse.Namespace) -> int:
    quarantine = not chosen.without_quarantine
    stories = chosen.stories or list(STORIES if quarantine else QUARANTINE)
    on = [chosen.kind] if chosen.kind else kinds()
    print(f"{', '.join(on)}; max_ttl {MAX_TTL:g} s, quarantine {'on' if quarantine else 'off'}, seed {chosen.seed}")
    summaries: list[Summary] = []
    took: dict[str, float] = {}
    processes = multiprocessing.get_context("spawn")  # a fork would take the threads' locks along
    number = processes.Value("i", 0)
    with ProcessPoolExecutor(AT_A_TIME, processes, initializer=prepare, initargs=(number,)) as pool:
        for story in stories:
            started_at = time.monotonic()
            rounds, at_a_time = chosen.rounds, AT_A_TIME
            if story in HEALING:
                rounds, at_a_time = chosen.healing_rounds or max(1, rounds // 10), AT_A_TIME_HEALING
            told = shown(rounds)
            played = run(story, rounds, pool, on, chosen.seed, quarantine, chosen.first, at_a_time, told)
            summaries.append(played)
            took[story] = time.monotonic() - started_at
    print(table(summaries, took))
    return verdict(summaries, quarantine)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stories", nargs="*", metavar="story", help="all, if none is named")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--healing-rounds", type=int, help="default: a tenth of the rounds")
    parser.add_argument("--seed", default=f"{random.randrange(2**32):x}")
    parser.add_argument("--first", type=int, default=0, help="begin with this round: to play seed-7 again, 7")
    parser.add_argument("--kind", choices=kinds(), help="default: every kind of server there is, in turn")
    parser.add_argument("--without-quarantine", action="store_true")
    chosen = parser.parse_args()
    if unknown := set(chosen.stories) - STORIES.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(STORIES)}")
    sys.exit(main(chosen))
