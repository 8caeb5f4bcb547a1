"""An engine on a database: one node, whichever of the two fronts asks."""

from __future__ import annotations

from ...clocks import boot_time
from ...core.effects import Round
from ...core.states import NodeState
from ...errors import Unsupported
from ...options import Settings
from ..base import Node
from .dialect import Dialect
from .links import AsyncLink, Hub, SyncLink
from .loops import Loops
from .threads import Threads
from .visits import Visits


class SqlStore:
    """What does not depend on who waits."""

    blocking = True
    clock = staticmethod(boot_time)
    nodes: tuple[Node, ...] = ()

    def __init__(self, dialect: Dialect, hub: Hub, settings: Settings) -> None:
        if settings.journal is not None:
            raise Unsupported(
                f"{dialect.name} keeps no journal (journal={settings.journal}): subscribe() to the events of each "
                "client, or keep the locks in redis:// or sqlite://"
            )
        self.name = dialect.name
        self.labels = (hub.label,)
        self._hub = hub
        self._visits = Visits(dialect, hub.label, settings)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.labels[0]}>"


class SqlEngine(SqlStore):
    """A database, over connections of our own."""

    def __init__(self, dialect: Dialect, hub: Hub, settings: Settings) -> None:
        super().__init__(dialect, hub, settings)
        self._threads = Threads(self._visits, hub, self.open)
        self._loops = Loops(self._visits, hub, self.open_async)

    def open(self, due: float) -> SyncLink:
        """Another link; raises Unsent."""
        raise NotImplementedError

    async def open_async(self, due: float) -> AsyncLink:
        raise NotImplementedError

    def perform(self, round_: Round) -> None:
        self._threads.perform(round_)

    async def perform_async(self, round_: Round) -> None:
        await self._loops.perform(round_)

    def states(self, samples: int) -> tuple[NodeState, ...]:
        return self._threads.states(samples)

    async def states_async(self, samples: int) -> tuple[NodeState, ...]:
        return await self._loops.states(samples)

    def cautions(self) -> list[tuple[str, str]]:
        """What speaks against the server's set-up, and what to do about it; for the doctor."""
        return self._threads.ask(self._visits.cautions, None)

    def close(self) -> None:
        self._threads.close()

    async def close_async(self) -> None:
        await self._loops.close()

    def forget(self) -> None:
        self._threads.forget()
        self._loops.forget()
