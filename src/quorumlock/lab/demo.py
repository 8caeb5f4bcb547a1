"""The demo: five nodes, three workers that share one lock, and things that go wrong.

The workers are processes. Each adds 1 to a counter, a row in SQLite, by reading it, working, and writing it back:
what two of them do at the same time is lost, and shows in the end as a difference. Then

- two nodes are killed: the other three are a majority, and nobody waits for the dead;
- a worker is stopped in mid-work, after it read and before it wrote, until its lease is over and somebody else
  has had the lock. When it wakes, it writes without looking. The row has seen a newer fence, and refuses.

It ends with what was counted; the exit code is 0 only if nothing was lost and all of this could be seen.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import quorumlock

from .demo_counter import Counter
from .demo_crew import Crew, Failure, Signals
from .demo_screen import Screen, new_screen
from .demo_story import Story
from .demo_worker import MAX_TTL, TTL
from .servers import Servers, kinds

NODES = 5
WORKERS = 3
KILLED = (1, 3)
STOPPED = 1
SWIFT = 2.0
"""Seconds in which nodes and workers are up, usually."""


def demo(*, plain: bool = False, seconds: float = 3.0, fenced: bool = True) -> int:
    """Shows it, each part for some seconds; gives the exit code.

    Without `fenced` the row accepts every write: the demo must then find out that increments were lost.
    """
    try:
        with Signals().noted() as signals:
            return _demo(signals, plain, seconds, fenced)
    except BrokenPipeError:  # `quorumlock demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        return 1


def _demo(signals: Signals, plain: bool, seconds: float, fenced: bool) -> int:
    story = Story(NODES, WORKERS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorumlock-demo-")))
        screen = stack.enter_context(new_screen(story, plain))
        nodes = stack.enter_context(_nodes(signals))
        try:
            with Counter(folder / "counter.sqlite") as counter:
                counter.create()
                _init_fleet(nodes.urls)
                story.ready = True
                screen.news(f"{NODES} nodes are up, and the fleet is initialised")
                crew = Crew(story, signals, screen.refresh)
                with crew.hired(WORKERS, nodes.urls, folder / "counter.sqlite", fenced=fenced):
                    _play(nodes, crew, story, screen, seconds)
                story.settle(counter.read(), counter.fences())
        except Failure as failure:
            story.failure = str(failure)
        story.end()
    screen.close()
    return 1 if story.troubles() else 0


@contextmanager
def _nodes(signals: Signals) -> Iterator[Servers]:
    """Five servers that answer."""
    kind = next(iter(kinds()), "valkey")
    for attempt in (1, 2, 3):
        signals.obey()
        servers = Servers(NODES, kind)
        try:
            try:
                servers.__enter__()
            except RuntimeError as error:  # somebody has taken a port that was free when it was chosen
                if attempt < 3:
                    continue
                raise quorumlock.EngineError(str(error)) from None
            yield servers
            return
        finally:
            for server in servers.servers:  # also those that were never started: each has a folder
                server.stop()


def _init_fleet(urls: list[str]) -> None:
    # A server that has just come up may be slow once; nobody waits for this but us.
    with quorumlock.connect(urls, max_ttl=MAX_TTL, node_timeout=2.0) as locks:
        locks.init_fleet()


def _play(nodes: Servers, crew: Crew, story: Story, screen: Screen, seconds: float) -> None:
    crew.until(lambda: all(worker.wrote_at for worker in story.workers), "an increment by each worker")
    screen.news(f"{WORKERS} workers: lock, read the counter, work, write 1 more, unlock")
    seconds = _pace(seconds, story.seconds)
    crew.watch(seconds)

    story.strike()
    for index in KILLED:
        nodes[index].kill()
    story.killed(set(KILLED))
    names = " and ".join(str(index + 1) for index in KILLED)
    screen.news(f"nodes {names} are killed (SIGKILL): {NODES - len(KILLED)} of {NODES} go on")
    crew.watch(seconds)

    _stop_one(crew, story, screen, seconds)
    crew.watch(seconds / 2)
    crew.finish()


def _pace(seconds: float, start: float) -> float:
    """How long to watch each part: less on a machine that was slow to start. The whole is to stay below 30 s."""
    return max(min(seconds, 1.0), seconds - max(0.0, start - SWIFT) / 3)


def _stop_one(crew: Crew, story: Story, screen: Screen, seconds: float) -> None:
    """A worker is stopped with the lock in its hands, and wakes when it is somebody else's."""
    worker, member, name = story.workers[STOPPED], crew.members[STOPPED], f"worker {STOPPED + 1}"
    told = len(worker.losses)
    member.order("pause")
    crew.until(lambda: worker.state == "between", "a worker between reading and writing")
    member.stop()
    worker.stop()
    screen.news(f"{name} has the lock and has read {worker.value}: stopped (SIGSTOP)")

    crew.until(lambda: story.fence > worker.fence, "a new holder after the ttl")
    screen.news(f"its lease ({TTL:g} s) ends: worker {story.holder + 1} gets the lock, and a newer fence")
    crew.watch(seconds / 3)

    member.order("go")  # first in its ears when it wakes: it writes, and does not look
    member.wake()
    worker.wake()
    away = worker.woke_at - worker.stopped_at
    screen.news(f"{name} wakes after {away:.1f} s (SIGCONT), unaware, and writes {worker.value + 1}")
    crew.until(lambda: len(worker.losses) > told, "the news that the lease is lost")
    if worker.late is not None:
        screen.news(f"the row has seen a newer fence: refused, it stays at {worker.late.found}")
    else:
        screen.news("the row has taken it, although it has seen a newer fence!")
    screen.news(f"{name} is told at the end of its block: LeaseLost ({worker.losses[-1]})")
