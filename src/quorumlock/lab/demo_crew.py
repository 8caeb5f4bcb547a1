"""The workers of the demo as processes: started, listened to, given orders, stopped, woken and ended.

Everything happens in one thread. Signals that ask the demo to end are noted when they come, and obeyed in
`Crew.look`, where nothing is half started and nothing half ended.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import quorumlock

from .demo_story import Story

AT_MOST = 8.0
"""How long the demo waits for something that must happen."""
LOOK = 0.05
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failure(Exception):
    """Something that the demo shows did not happen."""


class Signals:
    """Notes the signals that ask for an end."""

    def __init__(self) -> None:
        self._noted = 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = self._noted or number

    def obey(self) -> None:
        """Ends the demo if that was asked for, as Python itself would have ended it."""
        if self._noted == signal.SIGINT:
            raise KeyboardInterrupt
        if self._noted:
            raise SystemExit(128 + self._noted)

    @contextmanager
    def noted(self) -> Iterator[Signals]:
        """While this lasts they do nothing else. What is ignored (nohup) stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield self  # signals are not its business
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        mine = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
        try:
            for number in mine:
                signal.signal(number, self._note)
            yield self
        finally:
            for number in mine:
                signal.signal(number, before[number])


class Member:
    """One worker process."""

    def __init__(self, number: int, urls: list[str], counter: Path, *, fenced: bool) -> None:
        self.number = number
        self._errors = counter.with_name(f"worker-{number}.log")
        self._rest = b""
        self._ending = False
        package = Path(quorumlock.__file__).parent.parent
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.demo_worker", str(number), str(counter)]
                + ([] if fenced else ["careless"]),
                # Not the user's folder: what lies there might be taken for a module of the standard library.
                cwd=counter.parent,
                env=os.environ
                | {
                    "QUORUMLOCK_URL": ",".join(urls),
                    "PYTHONPATH": os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")])),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self.words = self._process.stdin, self._process.stdout

    def hear(self) -> list[dict[str, object]] | None:
        """What it said since; None if it will not say any more."""
        data = os.read(self.words.fileno(), 65536)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def order(self, word: str) -> None:
        try:
            os.write(self._orders.fileno(), f"{word}\n".encode())
        except BrokenPipeError:
            pass  # it has died, which the next look finds out

    def finish(self) -> None:
        """Lets it finish what it does; its orders end with its standard input."""
        self._ending = True
        self._orders.close()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def check(self) -> None:
        """Raises Failure if the process is gone and should not be."""
        code = self._process.poll()
        if code is None or (code == 0 and self._ending):
            return
        last = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else "".join(last) or "without a word"
        raise Failure(f"worker {self.number + 1} ended by itself: {how}")

    def end(self) -> None:
        """Ends it now, also if it is stopped; quiet if it has ended."""
        self._process.kill()
        self._process.wait()
        self._orders.close()
        self.words.close()


class Crew:
    """All workers, and what they tell."""

    def __init__(self, story: Story, signals: Signals, on_look: Callable[[], None]) -> None:
        self.members: list[Member] = []
        self._story = story
        self._signals = signals
        self._on_look = on_look
        self._selector = selectors.DefaultSelector()

    def watch(self, seconds: float) -> None:
        """Looks on for a while."""
        end_at = time.monotonic() + seconds
        while time.monotonic() < end_at:
            self.look()

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Looks on until something has happened."""
        end_at = time.monotonic() + AT_MOST
        while not happened():
            if time.monotonic() > end_at:
                raise Failure(f"waited {AT_MOST:g} s in vain for {what}")
            self.look()

    def finish(self) -> None:
        """Lets all of them finish, and hears their last words."""
        for member in self.members:
            member.finish()
        self.until(lambda: not self._selector.get_map(), "the workers to end")
        for member in self.members:
            member.check()

    def look(self) -> None:
        self._signals.obey()
        for member in self.members:
            member.check()
        for key, _ in self._selector.select(LOOK):
            member = key.data
            words = member.hear()
            if words is None:
                self._selector.unregister(key.fileobj)
            for word in words or ():
                self._story.heard(member.number, **word)
        self._on_look()

    @contextmanager
    def hired(self, count: int, urls: list[str], counter: Path, *, fenced: bool) -> Iterator[Crew]:
        """`count` workers, that have ended when this has."""
        with self._selector:
            try:
                for number in range(count):
                    self.members.append(Member(number, urls, counter, fenced=fenced))
                    self._selector.register(self.members[-1].words, selectors.EVENT_READ, self.members[-1])
                yield self
            finally:
                for member in self.members:
                    member.end()
