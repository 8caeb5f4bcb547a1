"""The fence in the row that it protects: no table of the guard's, one lock name for every row."""

import sqlite3

import quorumlock
from quorumlock.guards import ColumnGuard

database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)")
database.execute("INSERT INTO orders VALUES (42, 'new')")
guard = ColumnGuard("orders")
guard.create(database)  # once: adds the column `fence`
database.commit()

with quorumlock.connect("memory://") as locks:
    lock = locks.lock("orders:42", keep=False)
    paused = lock.acquire()
    paused.release()  # as if its time had run out while the process slept

    with lock as lease, database:
        guard.enter(database, lease, 42)  # before reading
        (state,) = database.execute("SELECT state FROM orders WHERE id = 42").fetchone()
        guard.update(database, lease, 42, {"state": "paid"})
        print(f"fence {lease.fence}: {state} -> paid")

    try:
        with database:
            guard.update(database, paused, 42, {"state": "cancelled"})
    except quorumlock.StaleFence as stale:
        print(f"refused: {stale}")

    # The same with a statement of your own.
    with lock as lease, database:
        statement = "UPDATE orders SET state = 'sent', fence = :fence WHERE id = :id AND fence <= :fence"
        cursor = database.execute(statement, {"fence": lease.fence, "id": 42})
        guard.check(database, lease, 42, cursor.rowcount)
    print("state:", database.execute("SELECT state FROM orders").fetchone()[0])
database.close()
