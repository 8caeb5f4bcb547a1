"""The pulse of a Locker's nodes, for somebody who comes by now and then, in any thread."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextvars import Context
from typing import Any

from ..core import pulse
from ..core.pulse import Pulse
from ..core.votes import Cause
from ..errors import ConfigurationError, LockError


class Pulses:
    """Feels it when it is asked; with asyncio it gives what it felt when it was asked before."""

    def __init__(self, locks: Any, failed: Callable[[str, Cause], None]) -> None:
        self._known = weakref.ref(locks)
        self._failed = failed
        self._last: list[Pulse] = []
        self._one_at_a_time = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if hasattr(locks, "aclose"):
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                raise ConfigurationError(
                    "the nodes of an AsyncLocker are asked in its event loop: call this where the loop runs, or "
                    "with pulse=False"
                ) from None

    def feel(self) -> list[Pulse]:
        locks = self._known()
        if locks is None:
            return []
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._begin, context=Context())
            except RuntimeError:  # the loop is closed
                self._last = []
            return self._last
        with self._one_at_a_time:
            try:
                return self._felt(locks._run(pulse.feel(locks._fleet)))
            except ConfigurationError:  # it is closed
                return []
            except LockError:
                return self._silent(locks)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._feel())

    async def _feel(self) -> None:
        locks = self._known()
        try:
            self._last = [] if locks is None else self._felt(await locks._run(pulse.feel(locks._fleet)))
        except ConfigurationError:
            self._last = []
        except LockError:
            self._last = [] if locks is None else self._silent(locks)

    def _felt(self, pulses: list[Pulse]) -> list[Pulse]:
        for one in pulses:
            if not one.able:
                self._failed(one.node, one.cause)
        return pulses

    def _silent(self, locks: Any) -> list[Pulse]:
        """A store that has only raised."""
        return self._felt([Pulse(node, None, Cause.FAILED) for node in locks._fleet.nodes])
