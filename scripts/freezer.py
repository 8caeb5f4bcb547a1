"""Runs a command, and stops all of its processes now and then: `freezer.py [OPTIONS] COMMAND …`.

About every 3 s nothing of the command runs for 0.2 to 0.7 s, neither tests nor clients nor servers, as on a busy
host. A cgroup does that where this user may make one (v1 or v2). Elsewhere every descendant gets SIGSTOP, parents
before children, and later SIGCONT; what a test has stopped itself stays stopped either way.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

CGROUPS = Path("/sys/fs/cgroup")
FROZEN_WITHIN = 5.0
_PR_SET_CHILD_SUBREAPER = 36


class Freezer(Protocol):
    """One way to stop the processes of a command."""

    def join(self) -> None:
        """Called in the command's process before it begins."""

    def freeze(self) -> None:
        """Returns when nothing runs."""

    def thaw(self) -> None:
        """Lets go on what `freeze` stopped."""

    def close(self) -> None: ...


class Cgroup:
    """The kernel's freezer: version 1 has a hierarchy of its own for it, version 2 a file in every group."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        first = folder / "freezer.state"
        self._switch, self._on, self._off = (
            (first, "FROZEN", "THAWED") if first.exists() else (folder / "cgroup.freeze", "1", "0")
        )

    @classmethod
    def new(cls) -> Cgroup | None:
        """None where there is no freezer, or this user may not use it."""
        name = f"quorumlock-{os.getpid()}"
        for place in (CGROUPS / "freezer", CGROUPS / "unified", CGROUPS):
            with suppress(OSError):
                group = cls(place / name)
                if group._switch.exists():
                    return group
                group.close()
        return None

    def join(self) -> None:
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def freeze(self) -> None:
        self._switch.write_text(self._on)
        wait_until(self._frozen)

    def _frozen(self) -> bool:
        if self._on == "FROZEN":
            return self._switch.read_text().strip() == self._on
        return "frozen 1" in (self._folder / "cgroup.events").read_text()

    def thaw(self) -> None:
        self._switch.write_text(self._off)

    def close(self) -> None:
        with suppress(OSError):  # a process of the command is still there
            self._folder.rmdir()


class Signals:
    """SIGSTOP and SIGCONT for every descendant. Orphans are adopted, so that they stay descendants."""

    def __init__(self) -> None:
        self._stopped: list[int] = []
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def join(self) -> None:
        pass

    def freeze(self) -> None:
        while running := [pid for pid, state in descendants(os.getpid()) if state not in "TtZX"]:
            for pid in running:  # parents first: a test that is stopped stops nobody else
                if state_of(pid) in "TtZX":
                    continue  # its parent has just stopped it itself
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    self._stopped.append(pid)
                wait_until(lambda pid=pid: state_of(pid) in "TtZX")  # type: ignore[misc]

    def thaw(self) -> None:
        while self._stopped:
            with suppress(ProcessLookupError):
                os.kill(self._stopped.pop(), signal.SIGCONT)

    def close(self) -> None:
        pass


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + FROZEN_WITHIN
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)


def state_of(pid: int) -> str:
    """A letter of `ps`; X for a process that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


def descendants(root: int) -> Iterator[tuple[int, str]]:
    """The processes below `root` and their states, parents before their children."""
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(parent), []).append((int(entry.name), state))
    todo = list(children.get(root, []))
    while todo:
        pid, state = todo.pop(0)
        yield pid, state
        todo += children.get(pid, [])


ENDS = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that ask this program to end."""
WAKES = ENDS | {signal.SIGCHLD}
"""Signals that end a pause."""


@contextmanager
def signals_blocked() -> Iterator[None]:
    """The kernel keeps these signals until `pause` takes them: none interrupts the command's start, or a freeze."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAKES)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pause(seconds: float, process: subprocess.Popen[bytes]) -> None:
    """Waits for that long, or until `process` has ended. KeyboardInterrupt: this program was asked to end."""
    end = time.monotonic() + seconds
    while process.poll() is None and (left := end - time.monotonic()) > 0:
        woken = signal.sigtimedwait(WAKES, left)
        if woken is not None and woken.si_signo in ENDS:
            raise KeyboardInterrupt


def run(command: list[str], freezer: Freezer, draw: random.Random, options: argparse.Namespace) -> int:
    """The command's exit code. SIGINT and SIGTERM end the command as ^C does."""
    frozen: list[float] = []

    def begin() -> None:
        freezer.join()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells ignore it in what they start in the background
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAKES)

    with signals_blocked():
        process = subprocess.Popen(command, preexec_fn=begin)
        try:
            while process.poll() is None:
                pause(options.every * draw.uniform(0.5, 1.5), process)
                if process.returncode is not None:
                    break
                seconds = draw.uniform(options.least, options.most)
                try:
                    freezer.freeze()
                    pause(seconds, process)
                    frozen.append(seconds)
                finally:
                    freezer.thaw()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
        finally:
            freezer.close()
    print(
        f"frozen {len(frozen)} times, for {sum(frozen):.1f} s in all ({type(freezer).__name__.lower()})", flush=True
    )
    return process.returncode


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="freezer.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=float, default=3.0, help="seconds from one stop to the next, about")
    parser.add_argument("--least", type=float, default=0.2, help="shortest stop, in seconds")
    parser.add_argument("--most", type=float, default=0.7, help="longest stop, in seconds")
    parser.add_argument("--seed", type=int, default=None, help="repeats the same stops")
    parser.add_argument("--signals", action="store_true", help="use signals even where cgroups can be had")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("no command")
    seed = random.randrange(10**6) if options.seed is None else options.seed
    freezer: Freezer = Signals() if options.signals else Cgroup.new() or Signals()
    print(f"freezing with --seed {seed}", flush=True)
    return run(command, freezer, random.Random(seed), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
