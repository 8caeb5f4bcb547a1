"""One worker of the demo: a process that adds 1 to the shared counter under the lock, again and again.

`python -m quorumlock.lab.demo_worker NUMBER DATABASE [careless]`, the nodes in QUORUMLOCK_URL. It tells what it
did as lines of JSON on its standard output. Orders are lines on its standard input:

- `pause`: next time, stand still between reading and writing, and say so;
- `go`: write now;
- the end of the input: finish what you are doing, and end.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import quorumlock

from .demo_counter import Counter

TTL = 2.0
MAX_TTL = 2.0
WORK = 0.004
REST = 0.02
_PR_SET_PDEATHSIG = 1


def work(number: str, counter: Counter) -> None:
    """Adds to the counter until there are no more orders."""
    with quorumlock.connect(max_ttl=MAX_TTL) as locks:
        lock = locks.lock("demo:counter", ttl=TTL)
        own = locks.lock(f"demo:own:{number}", ttl=TTL)
        with own:
            pass  # connects, so that the first latency is a latency
        while (order := _next_order()) is not None:
            try:
                _measure(own)
                asked_at = time.monotonic()
                with lock as lease:
                    _say("acquired", asked_at=asked_at, at=time.monotonic(), free=False)
                    _increment(counter, lease.fence, pause=order == "pause")
            except quorumlock.LeaseLost as lost:
                _say("lost", reason=lost.reason.value)
            time.sleep(random.uniform(0, REST))


def _increment(counter: Counter, fence: int, *, pause: bool) -> None:
    # There is no lease.check() here, on purpose: a process may be stopped between a check and a write just as
    # well. It is the fence in the statement itself that protects the row.
    if not counter.enter(fence):
        _say("refused")
        return
    value = counter.read()
    time.sleep(WORK)
    if pause:
        _say("between", fence=fence, value=value)
        _order()
    accepted, now = counter.write(value + 1, fence)
    if accepted:
        _say("increment", at=time.monotonic(), fence=fence)
    else:
        _say("refused", wanted=value + 1, value=now)


def _measure(own: quorumlock.Lock) -> None:
    """How long a lock takes that nobody else wants."""
    asked_at = time.monotonic()
    with own:
        at = time.monotonic()
    _say("acquired", asked_at=asked_at, at=at, free=True)


def _next_order() -> str | None:
    """What to do next: "" if nobody said anything, None if nobody ever will."""
    return _order() if select.select([0], [], [], 0)[0] else ""


def _order() -> str | None:
    """Waits for an order. Read byte by byte: what a buffer had swallowed, `select` would not see."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"\n", b""):
        line += byte
    return line.decode() if byte else None


def _say(did: str, **what: object) -> None:
    os.write(1, json.dumps({"did": did, **what}).encode() + b"\n")


def _end_with_parent() -> None:
    """A stopped worker would never notice that its input has ended; the kernel kills it even then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    _end_with_parent()
    with Counter(Path(sys.argv[2]), fenced="careless" not in sys.argv[3:]) as shared:
        work(sys.argv[1], shared)
