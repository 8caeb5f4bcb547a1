"""Two holders and one file: the one that slept too long does not overwrite what the other wrote.

Needs: pip install quorumlock
"""

import asyncio
import tempfile
from pathlib import Path

import quorumlock
from quorumlock.guards import AsyncFileGuard, FileGuard


async def with_asyncio(report: Path) -> None:
    """The same names, with `await`; the disk is waited for in a thread."""
    guard = AsyncFileGuard(report)
    async with quorumlock.connect_async("memory://office") as locks, locks.lock("report") as lease:
        await guard.enter(lease)
        await guard.write(lease, "total: 43")
        print(f"fence {lease.fence} wrote with asyncio")


with tempfile.TemporaryDirectory() as folder, quorumlock.connect("memory://office") as locks:
    report = Path(folder) / "report.txt"
    guard = FileGuard(report)

    slow = locks.lock("report", ttl=10, keep=False).acquire()
    guard.enter(slow)  # before reading
    locks.engine.clock.advance(60)  # slow sleeps for a minute: its lock expires, and somebody else gets it

    with locks.lock("report") as lease:
        guard.enter(lease)
        with guard.replace(lease) as file:  # piece by piece; readers see the old file until it is complete
            file.write(b"total: ")
            file.write(b"42")
        print(f"fence {lease.fence} wrote {report.read_text()!r}")

    try:
        guard.write(slow, "total: 41")
    except quorumlock.StaleFence as stale:
        print(f"fence {stale.fence} was refused: {stale.seen} was seen")
    print("the file still says", report.read_text())

    asyncio.run(with_asyncio(report))
    print("the file says", report.read_text())
