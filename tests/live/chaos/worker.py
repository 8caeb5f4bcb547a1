"""One client process of a chaos run: takes its lock again and again, and records what it saw.

| lane | what it does with the lock |
|---|---|
| `mutex` | holds it for a while: short, extended by hand, or beyond its ttl with the keeper; at times abandons it |
| `set` | reads a set, thinks for up to two ttl, and writes it back with one element more: Jepsen's lock-set |
| `guarded set` | the same through a guard, entered before reading |

Peers run here too, from environments of their own: whatever is not standard library is imported where it is used.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorumlock.lab.history_lines import Recorder

from .clients import PEERS, Client, clock

if TYPE_CHECKING:
    from .ours import Ours

TTL = (0.3, 0.6)
"""Of the sets. The mutex goes down to a fifth of a second, and up to a max_ttl of one."""
Write = Callable[[list[int]], None]


class Diary:
    """The history of this process, in the order of time though its keeper writes too."""

    def __init__(self, path: Path, process: int, name: str) -> None:
        self._record = Recorder(path, process, name)
        self._lock = threading.Lock()

    def __call__(self, kind: str, f: str, value: Any = None, at: float | None = None) -> None:
        with self._lock:
            self._record(kind, f, clock() if at is None else at, value)


class Worker:
    def __init__(self, client: Client, diary: Diary, draw: random.Random, process: int) -> None:
        self.client = client
        self.diary = diary
        self.draw = draw
        self._next = process * 100_000

    def acquire(self, ttl: float) -> bool:
        self.diary("invoke", "acquire")
        try:
            got = self.client.acquire(ttl)
        except Exception as error:
            told = type(error).__name__
            self.diary("fail" if told == "NoQuorum" else "unknown", "acquire", {"error": told})
            time.sleep(self.draw.uniform(0.01, 0.03))
            return False
        now = clock()
        if got is None:
            self.diary("fail", "acquire")
            time.sleep(self.draw.uniform(0.005, 0.05))
        elif got[0] <= now:
            self.diary("unknown", "acquire", {"over": True})  # stopped until it was over: nothing can be said
        else:
            self.diary("ok", "acquire", {"until": got[0], "fence": got[1]}, at=now)
        return got is not None

    def release(self) -> None:
        self.diary("invoke", "release")
        try:
            self.client.release()
        except Exception as error:
            self.diary("unknown", "release", {"error": type(error).__name__})
        else:
            self.diary("ok", "release")

    def add(self, store: Store, ttl: float) -> None:
        if not self.acquire(ttl):
            return
        self._next += 1
        element = self._next
        self.diary("invoke", "add", element)
        try:
            write = store.begin()
            elements = store.read()
            time.sleep(self.draw.uniform(0, 2 * ttl))
            write([*elements, element])
        except Exception as error:
            stale = type(error).__name__ == "StaleFence"
            self.diary("fail" if stale else "unknown", "add", element)
        else:
            self.diary("ok", "add", element)
        self.release()


class Store:
    """A set under one key of a server that no fault touches."""

    def __init__(self, url: str, key: str) -> None:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self.client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0))  # a write is sent once
        self.key = f"set:{key}"

    def begin(self) -> Write:
        """Before reading; what comes back writes."""
        return self._write

    def read(self) -> list[int]:
        found: list[int] = json.loads(self.client.get(self.key) or b"[]")
        return found

    def _write(self, elements: list[int]) -> None:
        self.client.set(self.key, json.dumps(elements))


class GuardedStore(Store):
    def __init__(self, url: str, key: str, ours: Ours) -> None:
        from quorumlock.guards.redis import RedisGuard

        super().__init__(url, key)
        self._guard = RedisGuard(self.client)
        self._ours = ours

    def begin(self) -> Write:
        lease = self._ours.lease
        self._guard.enter(lease)
        return lambda elements: self._guard.set(lease, self.key, json.dumps(elements))


def hold(worker: Worker, ours: Ours) -> None:
    """One round of the mutex."""
    import quorumlock

    from . import canaries

    draw, ttl = worker.draw, worker.draw.uniform(0.2, 1.0)
    if not worker.acquire(ttl):
        return
    try:
        time.sleep(draw.uniform(0, 0.02))
        for _ in range(draw.choice([0, 0, 0, 0, 1, 3])):
            ours.extend()
            time.sleep(draw.uniform(0, ttl / 6))
        if draw.random() < 0.1:
            time.sleep(draw.uniform(0, 3 * ttl))  # with the keeper, for longer than it lives
    except quorumlock.LeaseLost:
        pass  # told by the event
    if draw.random() < 0.05:
        ours.abandon()
        return
    if canaries.chosen() == "late":
        ours.give_back()
        time.sleep(draw.uniform(0.05, 0.15))
    worker.release()


def main(chosen: argparse.Namespace) -> None:
    draw = random.Random(chosen.seed)
    diary = Diary(chosen.folder / f"{chosen.process}.jsonl", chosen.process, chosen.name)
    worker, ours, store = _made(chosen, diary, draw)
    (chosen.folder / f"{chosen.process}.ready").touch()
    while store is None:
        assert ours is not None
        hold(worker, ours)
    while True:
        worker.add(store, draw.uniform(*TTL))


def _made(
    chosen: argparse.Namespace, diary: Diary, draw: random.Random
) -> tuple[Worker, Ours | None, Store | None]:
    """The worker, our lock if it uses one, and the set that it writes to, unless it only holds the lock."""
    urls = chosen.urls.split(",")
    if chosen.client in PEERS:
        client = PEERS[chosen.client](urls, chosen.name)
        return Worker(client, diary, draw, chosen.process), None, Store(chosen.store, chosen.name)
    from . import canaries
    from .ours import FRONTS

    keep = {"never": False, "always": True}.get(chosen.keep)
    ours = FRONTS[chosen.front](urls, chosen.name, diary, draw, keep)
    worker = Worker(ours, diary, draw, chosen.process)
    if chosen.lane == "mutex":
        return worker, ours, None
    if chosen.lane == "guarded set" and canaries.chosen() != "unguarded":
        return worker, ours, GuardedStore(chosen.store, chosen.name, ours)
    return worker, ours, Store(chosen.store, chosen.name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("lane", "name", "urls", "store", "client", "front", "seed", "keep"):
        parser.add_argument(f"--{option}", default="")
    parser.add_argument("--process", type=int)
    parser.add_argument("--folder", type=Path)
    main(parser.parse_args())
