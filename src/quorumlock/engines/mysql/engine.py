"""The engine on MySQL and MariaDB: the same rows, and nobody who tells: those who wait ask.

Promises. As `sql/`: at most one valid lease of a name, fences that only grow, whatever connections and clients do.
They hold for as long as the database keeps what it has committed, and its clock does not step: one primary, or a
failover that loses no commit.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from ...errors import ConfigurationError
from ...options import Settings
from ...retry import Retry
from ..sql.batches import Batch, Query
from ..sql.dialect import MYSQL
from ..sql.engine import SqlEngine
from ..sql.links import Hub
from ..sqlite.polling import Polling
from .place import place_of

POLL_FIRST, POLL_MOST = 0.005, 0.25


class MysqlEngine(SqlEngine):
    """One node: a database."""

    def __init__(self, source: str, settings: Settings) -> None:
        """Reads the URL; nothing is opened before the first request."""
        self._place = place_of(source)
        for driver in ("pymysql", "asyncmy"):
            if find_spec(driver) is None:
                raise ConfigurationError(f"mysql:// needs {driver}: pip install 'quorumlock[mysql]'")
        self.polling: Retry = Polling(POLL_FIRST, POLL_MOST)
        """How to wait for a lock, where the user did not say."""
        super().__init__(MYSQL, MysqlHub("mysql", self._place.label, settings), settings)

    def open(self, due: float) -> Any:
        from .links import connect

        return connect(self._place, due)

    async def open_async(self, due: float) -> Any:
        from .links import connect_async

        return await connect_async(self._place, due)


class MysqlHub(Hub):
    def bury(self, server_id: Any) -> Batch:
        """A user may end its own connections. What one of them is doing may take a moment more."""
        waits = "SELECT SLEEP(0.05) FROM information_schema.processlist WHERE id = ?"
        return Batch((Query("KILL ?", (server_id,)), Query(waits, (server_id,))))
