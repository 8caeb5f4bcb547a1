"""Measures when this machine did not let the processes of a test run: `python stalls.py ROOT FOLDER`.

A *stall* is one unbroken wait of one thread. Two things show it:

- The meter sleeps for a moment and wakes late: so did everybody, or the whole run was frozen.
- A thread waited for a processor. The kernel adds up these waits (`/proc/PID/task/TID/schedstat`) and counts how
  often the thread got one. Of `waits` that ended since the last sample and took `delay` together, all but the first
  began after it: the first took at least `delay - elapsed`, and the longest at least `delay / waits`. So many short
  waits are never taken for a long one.

The meter is a process of its own, so that no test can hold it up. It watches the process `ROOT` and all of its
descendants, ends with it, and writes two files: `stalls`, a line for each (when it ended, and how long it was, by
the monotonic clock), and `beat`, up to when it has looked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PERIOD = 0.05
LOOK_AROUND = 4
"""New processes and threads are looked for every so many samples."""
LEAST = 0.05
"""Shorter stalls are not written down."""
ANSWERS_WITHIN = 10.0


class Stall(NamedTuple):
    """One unbroken wait, and which process it was."""

    ended_at: float
    seconds: float
    where: str


def longest_wait(delay: float, waits: int, elapsed: float) -> float:
    """How long one of these waits was at least, if they ended within the last `elapsed` seconds."""
    return max(delay / max(waits, 1), delay - elapsed)


class Thread:
    """One thread, by its counters."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._delay, self._waits = self._read()
        self._read_at = time.monotonic()

    def _read(self) -> tuple[int, int]:
        _, delay, waits = os.pread(self._file, 80, 0).split()
        return int(delay), int(waits)

    def sample(self, now: float) -> float:
        """The longest wait that ended since the last sample, at least; raises OSError once the thread is gone."""
        delay, waits = self._read()
        if waits == self._waits:
            self._read_at = now
            return 0.0
        found = longest_wait((delay - self._delay) / 1e9, waits - self._waits, now - self._read_at)
        self._delay, self._waits, self._read_at = delay, waits, now
        return found

    def close(self) -> None:
        os.close(self._file)


class Meter:
    """Watches a process and its descendants."""

    def __init__(self, root: int) -> None:
        self._family = {root}
        self._strangers: set[int] = {os.getpid()}
        self._threads: dict[tuple[int, str], Thread] = {}

    def look_around(self) -> None:
        """Finds processes and threads that are new."""
        running = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._family &= running
        self._strangers &= running
        for pid in sorted(running - self._family - self._strangers):
            (self._family if parent(pid) in self._family else self._strangers).add(pid)
        for pid in self._family:
            with suppress(OSError, ValueError):  # it has just ended
                for name in os.listdir(f"/proc/{pid}/task"):
                    if (pid, name) not in self._threads:
                        self._threads[pid, name] = Thread(f"/proc/{pid}/task/{name}/schedstat")

    def sample(self) -> Iterator[Stall]:
        now = time.monotonic()
        for key, thread in list(self._threads.items()):
            try:
                waited = thread.sample(now)
            except (OSError, ValueError):  # it has ended
                thread.close()
                del self._threads[key]
                continue
            if waited >= LEAST:
                yield Stall(now, waited, f"process {key[0]}")


def parent(pid: int) -> int:
    """0 if there is no such process any more."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def watch(root: int, folder: Path) -> None:
    """Until the process `root`, whose child this is, has ended."""
    meter = Meter(root)
    beat = os.open(folder / "beat", os.O_RDWR | os.O_CREAT)
    with (folder / "stalls").open("a", buffering=1) as file:
        count, woke_at, used = 0, time.monotonic(), time.thread_time()
        while os.getppid() == root:
            if count % LOOK_AROUND == 0:
                meter.look_around()
            count += 1
            time.sleep(PERIOD)
            now, work = time.monotonic(), time.thread_time()
            late = now - woke_at - PERIOD - (work - used)
            woke_at, used = now, work
            stalls = list(meter.sample())
            if late >= LEAST:
                stalls.append(Stall(now, late, "clock"))
            for stall in stalls:
                file.write(f"{stall.ended_at} {stall.seconds} {stall.where}\n")
            os.pwrite(beat, b"%020.6f" % now, 0)


class StallMeter:
    """The meter of this process, from the outside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-S", "-E", __file__, str(os.getpid()), str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def started(self) -> None:
        """Returns when it measures."""
        self._wait_for(0.0)

    def longest(self, since: float, until: float) -> Stall | None:
        """The longest stall between two instants of the monotonic clock."""
        self._wait_for(until + PERIOD)
        return max(self._between(since, until), key=lambda stall: stall.seconds, default=None)

    def _between(self, since: float, until: float) -> Iterator[Stall]:
        with suppress(FileNotFoundError):
            for line in (self._folder / "stalls").read_text().splitlines():
                ended_at, seconds, where = line.split(" ", 2)
                stall = Stall(float(ended_at), float(seconds), where)
                if since < stall.ended_at and stall.ended_at - stall.seconds < until:
                    yield stall._replace(seconds=min(stall.seconds, stall.ended_at - since))

    def _wait_for(self, instant: float) -> None:
        """Until the meter has looked at everything before that instant."""
        end = time.monotonic() + ANSWERS_WITHIN
        while self._beat() <= instant and time.monotonic() < end and self._process.poll() is None:
            time.sleep(0.01)

    def _beat(self) -> float:
        with suppress(OSError, ValueError):
            return float((self._folder / "beat").read_text())
        return 0.0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]))
