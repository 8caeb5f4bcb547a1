"""Server-sent events: every page is told what changed, as soon as it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from .answers import Refusal
from .proxy import client

if TYPE_CHECKING:
    from .sampler import Sampler
    from .visitors import Visitors

STREAMS_MOST = 100
EACH_MOST = 10
"""Of one session, or one address."""
SILENCE = 15.0
"""Seconds after which something is said, so that no proxy takes the connection for dead."""


class Stream:
    """`/api/v1/stream`."""

    def __init__(self, sampler: Sampler, visitors: Visitors) -> None:
        self._sampler, self._visitors = sampler, visitors
        self._open: Counter[str] = Counter()

    async def told(self, request: Request) -> Response:
        who = request.state.session or client(request)
        if self._open.total() >= STREAMS_MOST or self._open[who] >= EACH_MOST:
            raise Refusal(503, f"{STREAMS_MOST} pages are open already, or {EACH_MOST} of yours: close some")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        told = StreamingResponse(self._pieces(request.state.session), 200, headers, "text/event-stream")
        return _Counted(told, self._counted(who))

    @contextmanager
    def _counted(self, who: str) -> Iterator[None]:
        self._open[who] += 1
        try:
            with self._sampler.watched():
                yield
        finally:
            self._open -= Counter([who])  # and none with 0 is kept

    async def _pieces(self, session: str) -> AsyncIterator[str]:
        """What changed, again and again, while the visitor may see it."""
        version = 0
        board = await self._sampler.fresh()
        while self._may_see(session):
            news = await board.newer(version, SILENCE)
            if not self._may_see(session):  # it may have ended meanwhile
                break
            if news:
                told, version = board.written(version), board.version
                yield f"data: {told}\n\n"
            else:
                yield ": nothing new\n\n"

    def _may_see(self, session: str | None) -> bool:
        return not self._sampler.stopping and (not session or self._visitors.known(session))


class _Counted(Response):
    """Counted from the moment in which it is allowed: nothing else runs between that and the first line here."""

    def __init__(self, told: Response, counted: AbstractContextManager[None]) -> None:
        super().__init__()
        self._told, self._counted = told, counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted:
            await self._told(scope, receive, send)
