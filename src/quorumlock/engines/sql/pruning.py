"""Deletes the rows of names that nobody has locked for long; what it deletes leaves its version in the floor.

    prune:  lifts the floor over the versions that are to go ─ deletes what is not above it
    others: make a row only above the floor they read, which they hold on to (a shared lock on its row)

So no name ever begins again at or below a version that it had. Whatever is written in between is younger than the
instant that was chosen first, and stays. These are two transactions: whoever is stopped between them keeps nobody
from anything.
"""

from __future__ import annotations

from .batches import Batch, Query, Visit
from .dialect import CELLS, LOCKS, META, Dialect


def prune(dialect: Dialect, keep: float) -> Visit[None]:
    big = f"CAST(? AS {dialect.big})"
    (result,) = yield Batch((Query(f"SELECT {dialect.now} FROM {META}"),))
    if not result.rows:
        return
    now_us = int(result.rows[0][0] or 0)
    old_us = now_us - int(keep * 1_000_000)
    for table, over, values in (
        (LOCKS, f"touched_us < {big} AND until_us < {big}", (old_us, now_us)),
        (CELLS, f"until_us < {big}", (now_us,)),
    ):
        highest = f"SELECT MAX(version) FROM {table} WHERE {over}"
        (found,) = yield Batch((Query(highest, values),))
        if found.rows and found.rows[0][0] is not None:
            lift = f"UPDATE {META} SET floor = GREATEST(floor, COALESCE(({highest}), 0))"
            yield Batch((Query(lift, values),))
            below = f"version <= (SELECT floor FROM {META})"
            yield Batch((Query(f"DELETE FROM {table} WHERE {over} AND {below}", values),))
