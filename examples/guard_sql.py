"""A holder that was paused comes back, and its write is refused: the guard table, with sqlite3 alone."""

import sqlite3

import quorumlock
from quorumlock.guards import SQLGuard

database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE report (id INTEGER PRIMARY KEY, total INTEGER)")
database.execute("INSERT INTO report VALUES (1, 0)")
guard = SQLGuard()
guard.create(database)  # once, with the other tables
database.commit()


def add(lease: quorumlock.Lease, amount: int) -> None:
    """Reads and writes in one transaction of yours; what the guard refuses is rolled back by `with`."""
    with database:
        guard.enter(database, lease)  # before reading
        (total,) = database.execute("SELECT total FROM report WHERE id = 1").fetchone()
        guard.admit(database, lease)  # with the write
        database.execute("UPDATE report SET total = ? WHERE id = 1", (total + amount,))
    print(f"fence {lease.fence} added {amount} to {total}")


with quorumlock.connect("memory://") as locks:
    lock = locks.lock("report", keep=False)
    paused = lock.acquire()
    paused.release()  # as if its time had run out while the process slept
    with lock as lease:
        add(lease, 10)
    try:
        add(paused, 1)
    except quorumlock.StaleFence as stale:
        print(f"refused: {stale}")
    print("total:", database.execute("SELECT total FROM report").fetchone()[0])
database.close()
