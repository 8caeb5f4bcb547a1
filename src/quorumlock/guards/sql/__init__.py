"""Guards in SQL databases: PostgreSQL, MySQL and MariaDB, SQLite; by their drivers, or by SQLAlchemy.

Rules, besides those of all guards:

1. A guard acts in the transaction of the connection it is given. It never commits and never rolls back, so the mark
   and the write are decided together, by the user.
2. `enter` and `admit` leave the row of the resource locked until that transaction ends. Whoever comes next waits
   until the write before it is decided, and reads nothing earlier.
3. A transaction whose view of the database is older than the last write under the guard is refused: PostgreSQL and
   SQLite do so themselves; of MySQL's, which would let it read what is no longer so, the guard does.
4. `admit` refuses a connection that commits every statement by itself, wherever the driver can tell.

Deadlocks, serialization failures and lost connections are raised as the driver raises them.
"""

from __future__ import annotations

from .aio import AsyncColumnGuard, AsyncSQLGuard
from .sync import ColumnGuard, SQLGuard

__all__ = ["AsyncColumnGuard", "AsyncSQLGuard", "ColumnGuard", "SQLGuard"]
