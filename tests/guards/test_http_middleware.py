"""The middleware: who is let in, who is refused and how, and how long the door is held."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from quorumlock import ConfigurationError, StaleFence
from quorumlock.guards import MAX_FENCE, Claim, FencingMiddleware, MemoryFences, fencing_headers
from quorumlock.guards.http import CLAIM, Receive, Scope, Send
from tests.support.waiting import forever


class App:
    """Remembers what reached it."""

    def __init__(self, handle: Callable[[Scope], Awaitable[None]] | None = None) -> None:
        self.seen: list[Claim | None] = []
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope.get(CLAIM))
        if self._handle is not None:
            await self._handle(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


def ask(
    app: Any, *headers: tuple[str, str] | dict[str, str], method: str = "PUT", path: str = "/"
) -> httpx.Response:
    pairs = [pair for one in headers for pair in (one.items() if isinstance(one, dict) else [one])]

    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.request(method, path, headers=pairs)

    return asyncio.run(asking())


def token(fence: int, resource: str = "report") -> dict[str, str]:
    return fencing_headers(Claim(resource, fence))


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and kind of a refusal, whose form is checked on the way."""
    told = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert told["status"] == answer.status_code
    assert told["title"]
    assert told["detail"]
    return answer.status_code, told["type"].removeprefix("urn:quorumlock:")


def test_who_is_current_is_let_in_and_the_application_is_told() -> None:
    app = App()
    service = FencingMiddleware(app)
    for fence in (7, 7, 8, MAX_FENCE):
        assert ask(service, token(fence)).text == "done"
    assert app.seen == [Claim("report", fence) for fence in (7, 7, 8, MAX_FENCE)]


def test_who_is_stale_is_told_both_fences() -> None:
    app = App()
    service = FencingMiddleware(app)
    ask(service, token(MAX_FENCE))
    answer = ask(service, token(MAX_FENCE - 1))
    assert problem(answer) == (412, "stale-fence")
    assert (answer.json()["fence"], answer.json()["seen"]) == (MAX_FENCE - 1, MAX_FENCE)
    assert len(app.seen) == 1
    assert ask(service, token(1, "other")).status_code == 200


def test_who_has_no_token_is_asked_for_one() -> None:
    app = App()
    answer = ask(FencingMiddleware(app))
    assert problem(answer) == (428, "fence-required")
    assert app.seen == []


def test_where_none_is_required_who_has_none_passes() -> None:
    app = App()
    service = FencingMiddleware(app, required=False)
    assert ask(service).status_code == 200
    assert ask(service, token(8)).status_code == 200
    assert problem(ask(service, token(7))) == (412, "stale-fence")
    assert problem(ask(service, ("Fencing-Token", "x"))) == (400, "fence-malformed")
    assert app.seen == [None, Claim("report", 8)]


@pytest.mark.parametrize("value", ["", "report", "report;x", "report;0", "a;b;7", "%ff;7", f"r;{MAX_FENCE + 1}"])
def test_what_is_malformed_is_refused(value: str) -> None:
    app = App()
    assert problem(ask(FencingMiddleware(app), ("Fencing-Token", value))) == (400, "fence-malformed")
    assert app.seen == []


def test_bytes_that_are_no_ascii_are_refused() -> None:
    async def asking() -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "PUT", "headers": [(b"Fencing-Token", b"r\xfc;7")]}
        await FencingMiddleware(App())(scope, None, send)  # type: ignore[arg-type]
        return int(sent[0]["status"])

    assert asyncio.run(asking()) == 400


def test_two_tokens_are_one_too_many() -> None:
    app = App()
    assert problem(ask(FencingMiddleware(app), token(7), token(7))) == (400, "fence-malformed")
    assert problem(ask(FencingMiddleware(app), ("Fencing-Token", "r;7, r;8"))) == (400, "fence-malformed")
    assert app.seen == []


def test_only_methods_that_write_are_guarded() -> None:
    app = App()
    service = FencingMiddleware(app)
    for method in ("GET", "HEAD", "OPTIONS"):
        assert ask(service, method=method).status_code == 200
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert ask(service, method=method).status_code == 428
    only = FencingMiddleware(app, methods=["purge"])
    assert ask(only, method="PURGE").status_code == 428
    assert ask(only).status_code == 200
    with pytest.raises(ConfigurationError, match="list of methods"):
        FencingMiddleware(app, methods="PUT")


def test_the_service_says_what_a_request_is_about() -> None:
    app = App()

    def resource(scope: Scope) -> str | None:
        return None if scope["path"] == "/login" else f"order{scope['path']}"

    service = FencingMiddleware(app, resource=resource)
    assert ask(service, token(7, "order/42"), path="/42").status_code == 200
    assert problem(ask(service, token(9, "order/43"), path="/42")) == (400, "fence-elsewhere")
    assert problem(ask(service, path="/42")) == (428, "fence-required")
    assert ask(service, path="/login").status_code == 200
    assert app.seen == [Claim("order/42", 7), None]
    assert ask(service, token(8, "order/43"), path="/43").status_code == 200, "what was refused left no mark"


def test_an_application_that_finds_a_fence_stale_is_answered_for() -> None:
    async def refuse(scope: Scope) -> None:
        raise StaleFence("a guard of the application's own", fence=7, seen=9)

    answer = ask(FencingMiddleware(App(refuse)), token(7))
    assert problem(answer) == (412, "stale-fence")
    assert (answer.json()["fence"], answer.json()["seen"]) == (7, 9)


def test_an_application_that_has_begun_to_answer_is_not_answered_for() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise StaleFence("too late", fence=7, seen=9)

    with pytest.raises(StaleFence, match="too late"):
        ask(FencingMiddleware(app), token(7))


def test_an_application_that_fails_leaves_the_mark_and_opens_the_door() -> None:
    async def fail(scope: Scope) -> None:
        if scope[CLAIM].fence == 8:
            raise ZeroDivisionError

    service = FencingMiddleware(App(fail))
    with pytest.raises(ZeroDivisionError):
        ask(service, token(8))
    assert ask(service, token(7)).status_code == 412
    assert ask(service, token(9)).status_code == 200


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_what_is_not_http_passes(kind: str) -> None:
    passed: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append((scope, receive, send))

    scope, receive, send = {"type": kind}, object(), object()
    asyncio.run(FencingMiddleware(app)(scope, receive, send))  # type: ignore[arg-type]
    assert passed == [(scope, receive, send)]


def test_the_scope_of_others_is_not_written_to() -> None:
    scopes: list[Scope] = []
    service = FencingMiddleware(App())

    async def outside(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await service(scope, receive, send)

    ask(outside, token(7))
    assert CLAIM not in scopes[0]


class Watched(MemoryFences):
    """Tells when the hold begins and ends."""

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told

    @contextlib.asynccontextmanager
    async def hold(self, claimed: Claim, /) -> AsyncIterator[None]:
        async with super().hold(claimed):
            self._told.append("held")
            try:
                yield
            finally:
                self._told.append("free")


def test_it_is_held_until_a_streamed_response_has_ended() -> None:
    told: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0)
            told.append("sent")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    assert ask(FencingMiddleware(app, store=Watched(told)), token(7)).text == "xx"
    assert told == ["held", "sent", "sent", "free"]


def test_a_request_that_is_cancelled_opens_the_door() -> None:
    told: list[str] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def wait(scope: Scope) -> None:
            begun.set()
            await forever()

        service = FencingMiddleware(App(wait), store=Watched(told))
        headers = [(b"fencing-token", b"report;7")]
        scope = {"type": "http", "method": "PUT", "path": "/", "headers": headers}
        request = asyncio.ensure_future(service(scope, None, None))  # type: ignore[arg-type]
        await begun.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(main())
    assert told == ["held", "free"]
