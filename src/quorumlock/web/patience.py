"""Connections end on which nothing comes to an end: there is room for a few hundred, and anybody can open one."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

ASKING = 10.0
"""Seconds for the head of a request, and for its body."""
READING = 30.0
"""Seconds in which a visitor must take something of what it is sent."""


class Patient(H11Protocol):
    """uvicorn's protocol, with an end of its patience."""

    _asking: asyncio.TimerHandle
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._asking = self.loop.call_later(ASKING, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._asking.cancel()
        elif self._asking.cancelled():
            self._asking = self.loop.call_later(ASKING, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(READING, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._asking.cancel()
        if self._reading is not None:
            self._reading.cancel()
