"""Puts the dashboard together: an ASGI application around a Locker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from .. import Locker
from .answers import Refusal, answer
from .api import Api
from .gate import Gate
from .metrics import Metrics
from .openapi import document
from .pages import FILES, FRESH, Pages
from .sampler import Sampler
from .settings import WebSettings
from .source import Source
from .stream import Stream
from .visitors import Visitors


class Dashboard:
    """An ASGI application. Who made the Lockers closes them.

    `breaker`: a Locker with a journal, for breaks on a fleet where others keep one.
    """

    def __init__(self, locker: Locker, settings: WebSettings, breaker: Locker | None = None) -> None:
        self.sampler = Sampler(Source(locker, breaker), settings.every)
        self.visitors = Visitors(settings.token)
        api = Api(self.sampler, settings, self.visitors)
        pages = Pages(settings, self.visitors)
        described = document(settings)

        async def openapi(request: Request) -> Response:
            return answer(described)

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with self.sampler.running():
                yield

        app = Starlette(
            routes=[
                Route("/", pages.home),
                Route("/login", pages.login, methods=["GET", "POST"]),
                Route("/logout", pages.logout, methods=["POST"]),
                Route("/api/v1/session", api.session),
                Route("/api/v1/overview", api.overview),
                Route("/api/v1/locks", api.locks),
                Route("/api/v1/lock", api.lock),
                Route("/api/v1/lock/break", api.break_, methods=["POST"]),
                Route("/api/v1/nodes", api.nodes),
                Route("/api/v1/events", api.events),
                Route("/api/v1/stream", Stream(self.sampler, self.visitors).told),
                Route("/api/v1/openapi.json", openapi),
                Route("/metrics", Metrics(self.sampler).told),
                Mount("/static", _Files(directory=FILES)),
            ],
            exception_handlers={Refusal: _refused, HTTPException: _no_such, Exception: _failed},
            lifespan=lifespan,
        )
        app.router.redirect_slashes = False
        self._gate = Gate(app, settings, self.visitors)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._gate(scope, receive, send)


class _Files(StaticFiles):
    """Asked for anew after an update, and not sent again while they are the same."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(FRESH)
        return response


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _failed(request: Request, error: Exception) -> Response:
    """A mistake of our own; `Gate` tells the log."""
    return answer({"error": "the dashboard made a mistake; its log has more"}, 500)


async def _no_such(request: Request, error: Exception) -> Response:
    """No such page, or no such method."""
    assert isinstance(error, HTTPException)
    return answer({"error": error.detail}, error.status_code, error.headers)
