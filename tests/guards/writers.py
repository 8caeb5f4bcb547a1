"""Fifty writer processes with shuffled fences, killed at random, and the check of what they left behind.

Every accepted write carries on what it read: the resource holds a chain of fences, each entry sealed over all
before it. So the order of accepted writes, a lost write and a torn one can be seen in the resource itself, whatever
the writers believe. What they believe is in a log, which says of every attempt how it began and how it ended.

    python -m tests.guards.writers FORM WHERE LOG SEED

is one light process that forks the writers, kills one every few milliseconds, and forks another in its place.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from quorumlock import StaleFence
from quorumlock.guards import Claim

ROOT = Path(__file__).parents[2]
WRITERS = 50
ROUND = 2.0
"""Seconds that a round takes at most. In each, every writer tries once, sooner or later. The fences of the rounds
grow, those within one are shuffled. On a slow machine it takes longer, but who has the highest fence wins."""
LONG = bool(os.environ.get("QUORUMLOCK_LONG"))
KILLS, ACCEPTED, REFUSED = (100, 40, 500) if LONG else (20, 6, 50)
"""A run goes on until it has seen so many, however slow the machine is."""
LONGEST = 40.0
OVER, NEVER = -1, 2**31 - 1
SEEDS = range(1, 11)
"""So often a guard with a fault may be lucky, before the check is said not to find it."""
COMPLAINTS = ("torn", "wrong", "error")

Attempt = Callable[[Claim], None]


class TornError(Exception):
    """A resource holds what nobody wrote."""


def _seal(before: bytes, fence: int) -> str:
    return hashlib.sha256(b"%b%d" % (before, fence)).hexdigest()


def extended(chain: bytes, fence: int) -> bytes:
    """The chain with one more entry."""
    entries(chain)
    return chain + f"{fence} {_seal(chain, fence)}\n".encode()


def entries(chain: bytes) -> list[int]:
    """The fences in a chain; TornError if it is not one."""
    found: list[int] = []
    before = b""
    for line in chain.splitlines(keepends=True):
        head, _, seal = line.decode(errors="replace").partition(" ")
        if not head.isdigit() or seal != _seal(before, int(head)) + "\n":
            raise TornError(f"entry {len(found)} is {line!r}")
        found.append(int(head))
        before += line
    return found


def pause() -> None:
    """Between reading and writing: the time in which somebody newer comes, and in which processes are killed."""
    time.sleep(random.random() * 0.006)


class Board:
    """Memory that the writers share: which round it is, and who has done it."""

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, 4 * (WRITERS + 1))).cast("i")
        self.done = self._cells[1:]
        self.current = 1

    @property
    def current(self) -> int:
        return self._cells[0]

    @current.setter
    def current(self, number: int) -> None:
        self._cells[0] = number
        self.changed_at = time.monotonic()

    def turn(self) -> None:
        """The next round, if everybody has done this one, or it has taken too long."""
        if min(self.done) >= self.current or time.monotonic() > self.changed_at + ROUND:
            self.current += 1


# What a writer does.


def _write_rounds(attempts: dict[str, Attempt], number: int, log: int, board: Board, seed: str) -> None:
    random.seed(f"{seed}/{number}/{board.current}")
    while (current := board.current) != OVER:
        if current == board.done[number]:
            time.sleep(random.random() * 0.08)
            continue
        order = random.Random(f"{seed}/{current}").sample(range(WRITERS), WRITERS)
        fence = current * WRITERS + order[number] + 1
        for name, attempt in attempts.items():
            _log(log, name, "try", fence)
            try:
                attempt(Claim(name, fence))
                _log(log, name, "ok", fence)
            except StaleFence as stale:
                _log(log, name, "stale" if stale.seen > fence == stale.fence else "wrong", fence)
            except TornError:
                _log(log, name, "torn", fence)
            except Exception as error:
                _log(log, name, "error", fence, repr(error).replace("\n", " "))
        board.done[number] = current


def _log(log: int, *words: object) -> None:
    """One write to a file opened for appending: it is there whole, even if its writer is killed right after."""
    os.write(log, (" ".join(map(str, words)) + "\n").encode())


# The process that has them.


def _fork(make: Callable[[int], dict[str, Attempt]], number: int, *how: object) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with its parent
        os.nice(5)  # or fifty of them leave no time for killing
        _write_rounds(make(number), number, *how)  # type: ignore[arg-type]
        os._exit(0)
    except BaseException as error:
        _log(2, repr(error))
        os._exit(1)


def main(form: str, where: str, log: str, seed: str) -> None:
    from .writer_forms import FORMS, prepare  # imported once, for all of them

    prepare(form)

    def make(number: int) -> dict[str, Attempt]:
        return FORMS[form](where, number)

    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    board = Board()
    chance = random.Random(seed)
    end = time.monotonic() + LONGEST
    running = {number: _fork(make, number, out, board, seed) for number in range(WRITERS)}
    kills = 0
    while time.monotonic() < end:
        time.sleep(chance.random() * 0.04)
        if kills >= KILLS and _enough(Path(log)):
            break
        number = chance.choice(list(running))
        os.kill(running[number], signal.SIGKILL)
        _, status = os.waitpid(running[number], 0)
        kills += os.WIFSIGNALED(status)
        board.done[number] = board.current  # so that the dead one's fence is not used again
        running[number] = _fork(make, number, out, board, seed)
        board.turn()
    board.current = OVER
    failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in running.values())
    print(json.dumps({"kills": kills, "failed": failed}))


def _enough(log: Path) -> bool:
    words = [line.split(" ", 2)[:2] for line in log.read_text().splitlines()]
    return all(
        (words.count([name, "ok"]) >= ACCEPTED and words.count([name, "stale"]) >= REFUSED)
        or any([name, bad] in words for bad in COMPLAINTS)
        for name in {name for name, _ in words}
    )


# What the tests see of it.


@dataclass
class Outcome:
    """What the writers of one resource believe."""

    kills: int
    said: dict[str, set[int]] = field(default_factory=dict)
    """The fences of all attempts, by word: try, ok, stale, and what should not be: torn, wrong, error."""
    complaints: list[str] = field(default_factory=list)

    def __getitem__(self, word: str) -> set[int]:
        return self.said.get(word, set())

    @property
    def unknown(self) -> set[int]:
        """Those that were killed in the middle."""
        return self["try"].difference(*(self[word] for word in self.said if word != "try"))


def run(form: str, where: str, folder: Path, *, seed: int = 1) -> dict[str, Outcome]:
    """What became of all the writers, by resource."""
    log = folder / f"{form}-{seed}.log"
    command = [sys.executable, "-m", __name__, form, where, str(log), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["failed"] == 0, done.stderr
    outcomes: dict[str, Outcome] = {}
    for line in log.read_text().splitlines():
        name, word, fence, *_ = line.split(" ", 3)
        outcome = outcomes.setdefault(name, Outcome(told["kills"]))
        outcome.said.setdefault(word, set()).add(int(fence))
        if word in COMPLAINTS:
            outcome.complaints.append(line)
    return outcomes


def violations(outcome: Outcome, accepted: bytes | Iterable[int]) -> list[str]:
    """What is wrong with the chain that is left, or with the order of fences that the resource tells."""
    found = outcome.complaints[:3]
    try:
        chain = entries(accepted) if isinstance(accepted, bytes) else list(accepted)
    except TornError as torn:
        return [*found, f"torn: {torn}"]
    found += [f"order: {late} after {early}" for early, late in itertools.pairwise(chain) if late <= early]
    if lost := outcome["ok"] - set(chain):
        found.append(f"lost: {sorted(lost)}")
    if strangers := set(chain) - outcome["ok"] - outcome.unknown:
        found.append(f"not reported: {sorted(strangers)}")
    return found


def was_a_contest(outcome: Outcome) -> bool:
    """Enough was accepted, refused and killed for the check to mean something."""
    return len(outcome["ok"]) >= ACCEPTED and len(outcome["stale"]) >= REFUSED and outcome.kills >= KILLS


if __name__ == "__main__":
    from tests.guards.writers import main  # this module once, not a second time under another name

    main(*sys.argv[1:])
