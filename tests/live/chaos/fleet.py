"""The nodes of a chaos run: real servers that persist, each with a clock, a disk and a proxy of its own."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from quorumlock.lab.servers import Server, kinds
from tests.support.proxy import Proxy

from .clocks import Clock

NODES = 5
OPEN = ("--bind", "0.0.0.0", "--protected-mode", "no")
"""Only in a network namespace of the run's own: there others come over its wires."""
AOF = ("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")


class Node(Server):
    """A server whose clock can be stepped, and which comes back with the disk that it is given."""

    def __init__(self, kind: str, number: int, clock: Clock | None, arguments: Sequence[str] = ()) -> None:
        super().__init__(kind, arguments=(*arguments, *AOF))
        self.number = number
        self.clock = clock
        self.proxy: Proxy
        self.old: Path | None = None
        """A copy of its disk from earlier."""
        if clock is not None:
            self._command = [*clock.command, *self._command]

    @property
    def offset(self) -> float:
        return self.clock.offset if self.clock else 0.0

    def keep_disk(self) -> None:
        """The disk as it is now, to come back with later. A write may be under way: then the copy ends early."""
        self.forget_copy()
        self.old = self.folder.with_name(self.folder.name + "-old")
        shutil.copytree(self.folder, self.old)

    def wipe(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def put_back(self) -> None:
        """The copy takes the place of the disk."""
        assert self.old is not None
        shutil.rmtree(self.folder)
        self.old.rename(self.folder)
        self.old = None

    def forget_copy(self) -> None:
        if self.old is not None:
            shutil.rmtree(self.old, ignore_errors=True)
            self.old = None

    def stop(self) -> None:
        self.forget_copy()
        super().stop()


@contextmanager
def fleet(library: Path | None, arguments: Sequence[str] = ()) -> Iterator[list[Node]]:
    """Nodes of every kind there is, in turn, each behind its proxy; `library` moves their clocks."""
    with ExitStack() as stack:
        nodes = []
        for number, kind in zip(range(NODES), itertools.cycle(kinds())):
            clock = Clock(library, f"node-{number}") if library else None
            if clock:
                stack.callback(clock.close)
            nodes.append(Node(kind, number, clock, arguments))
            stack.callback(nodes[-1].stop)
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            node.wait_until_ready()
            node.proxy = stack.enter_context(Proxy(node))
        yield nodes
