"""Server-sent events: every page is told what changed, as soon as it is known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .answers import Refusal, dumped

if TYPE_CHECKING:
    from .sampler import Sampler
    from .visitors import Visitors

STREAMS_MOST = 100
SILENCE = 15.0
"""Seconds after which something is said, so that no proxy takes the connection for dead."""


class Stream:
    """`/api/v1/stream`."""

    def __init__(self, sampler: Sampler, visitors: Visitors) -> None:
        self._sampler, self._visitors = sampler, visitors

    async def told(self, request: Request) -> Response:
        if self._sampler.watchers >= STREAMS_MOST:
            raise Refusal(503, f"{STREAMS_MOST} pages are open already")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._pieces(request), 200, headers, "text/event-stream")

    async def _pieces(self, request: Request) -> AsyncIterator[str]:
        """What changed, again and again, while the visitor may see it."""
        session = request.state.session
        version = 0
        with self._sampler.watched():
            board = await self._sampler.fresh()
            while self._may_see(session):
                news = await board.newer(version, SILENCE)
                if not self._may_see(session):  # it may have ended meanwhile
                    break
                if news:
                    told = board.since(version)
                    version = told["version"]
                    yield f"data: {dumped(told)}\n\n"
                else:
                    yield ": nothing new\n\n"

    def _may_see(self, session: str | None) -> bool:
        return not self._sampler.stopping and (not session or self._visitors.known(session))
