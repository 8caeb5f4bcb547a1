"""The client processes of a chaos run: who uses which lock over which wires, and starting them anew."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from quorumlock.lab.servers import Server, _end_with_parent

from .clocks import Clock
from .fleet import Node
from .network import Network

FRONTS = ("threads", "asyncio")
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Lane:
    """One lock, or set, and how it is used."""

    name: str
    lane: str
    client: str = "quorumlock"
    keep: str = ""
    python: str = sys.executable
    waived: tuple[str, ...] | None = None
    """What is counted, and not held against it; empty: everything."""
    workers: int = 3


OURS = (
    Lane("mutex", "mutex", workers=4),
    Lane("set", "set", keep="never", waived=("lost update",)),
    Lane("kept set", "set", keep="always", waived=("lost update",)),
    Lane("guarded set", "guarded set"),
)
"""Without a guard the lock is promised, and not the set."""


class Post(NamedTuple):
    """What one worker does; `side` None is this machine's loopback, through the proxies."""

    lane: Lane
    side: int | None
    front: str


class Crew:
    """The workers."""

    def __init__(
        self, lanes: Sequence[Lane], nodes: list[Node], store: Server, network: Network | None, folder: Path,
        draw: random.Random, library: Path | None,
    ) -> None:  # fmt: skip
        self._nodes = nodes
        self._store = store
        self._network = network
        self._folder = folder
        self._draw = draw
        self._started = 0
        places: list[int | None] = [None, *(range(len(network.sides)) if network else ())]
        self.posts = [
            Post(lane, places[number % len(places)], FRONTS[number % 2])
            for lane in lanes
            for number in range(lane.workers)
        ]
        count = len(self.posts)
        self.clocks = [Clock(library, f"client-{number}") for number in range(count)] if library else []
        self.workers = [self._start(number) for number in range(count)]

    def replace(self, number: int) -> None:
        """Killed, and somebody else in its place: a process that has ended does not come back."""
        self.workers[number].kill()
        self.workers[number].wait()
        self.workers[number] = self._start(number)

    def check(self) -> None:
        for post, worker in zip(self.posts, self.workers, strict=True):
            if worker.poll() is not None:
                raise RuntimeError(f"a worker of {post.lane.name!r} ended by itself, with {worker.returncode}")

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        lane, side, front = self.posts[number]
        clock = self.clocks[number].command if self.clocks else []
        self._started += 1
        if self._network is None or side is None:
            inside, store = [], self._store.url
            urls = [node.proxy.url for node in self._nodes]
        else:
            inside, store = self._network.inside(side), f"redis://{self._network.store}:{self._store.port}"
            addresses = zip(self._network.nodes, self._nodes, strict=True)
            urls = [f"redis://{address}:{node.port}" for address, node in addresses]
        options = {
            "front": front, "lane": lane.lane, "name": lane.name,
            "client": lane.client, "keep": lane.keep, "urls": ",".join(urls),
            "store": store, "process": self._started, "folder": self._folder, "seed": self._draw.getrandbits(32),
        }  # fmt: skip
        words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
        return subprocess.Popen(
            [*inside, *clock, lane.python, "-m", "tests.live.chaos.worker", *words],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            preexec_fn=_end_with_parent,
        )
