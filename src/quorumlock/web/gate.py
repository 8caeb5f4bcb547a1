"""What every request passes: headers of defence, names this server has, who asks, and whether a change was meant.

1. Every answer forbids foreign scripts, frames, sniffing and referrers.
2. The header Host must be a name of this server (DNS rebinding).
3. Where there is an access token: a session, or `Authorization: Bearer`.
4. What is no page must not be asked for by a page of another site: nobody would read it, and still it costs.
5. A change must come from a page of ours: its Origin is the Host, and it knows the CSRF token of its session.
   Who gives the access token itself needs no CSRF token: a browser never sends that by itself.
"""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answers import Refusal
from .proxy import client, unveiled
from .settings import WebSettings
from .visitors import Visitors

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
log = logging.getLogger("quorumlock.web")

SAFE = ("GET", "HEAD", "OPTIONS")
OPEN = ("/login", "/static/")
"""What is seen before a token is given: nothing in there is about locks."""
OURS = ("same-origin", "none")
"""What browsers say of a request that no other site has made them send."""


class Gate:
    """ASGI middleware, around everything else."""

    def __init__(self, app: ASGIApp, settings: WebSettings, visitors: Visitors) -> None:
        self._app, self._settings, self._visitors = app, settings, visitors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["path"] == self._settings.root_path != "":
            await RedirectResponse(f"{self._settings.root_path}/", 308)(scope, receive, _armoured(send))
            return
        scope = self._placed(scope)
        request = Request(scope)
        guarded = _armoured(send)
        try:
            self._admit(request)
        except Refusal as refusal:
            if refusal.status == 401 and request.method in SAFE and self._path(request) == "/":
                await RedirectResponse("login", 303)(scope, receive, guarded)
            else:
                await refusal.response()(scope, receive, guarded)
            return
        try:
            await self._app(scope, receive, guarded)
        except ClientDisconnect:
            pass  # nobody is there to be answered
        except Exception as error:
            told = log.isEnabledFor(logging.INFO)
            log.error("%s %r failed: %r", request.method, scope["path"], error, exc_info=told)

    def _placed(self, scope: Scope) -> Scope:
        """Behind a proxy that leaves the path as it is, and behind one that takes the root path away."""
        root = self._settings.root_path
        path = scope["path"]
        inside = path.startswith(f"{root}/")
        scope = unveiled(scope, self._settings.trusted_proxies)
        return {**scope, "root_path": root, "path": path if inside else root + path, "state": {}}

    def _path(self, request: Request) -> str:
        return str(request.scope["path"]).removeprefix(self._settings.root_path) or "/"

    def _admit(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if not self._settings.knows(host):
            raise Refusal(421, "this server is not known by that name: start it with --allowed-host NAME")
        session = request.cookies.get(self._settings.cookie, "")
        session = session if self._visitors.known(session) else ""
        request.state.session = session
        told = self._told(request)
        path = self._path(request)
        foreign = request.headers.get("sec-fetch-site", "none") not in OURS
        if foreign and (request.method not in SAFE or (path != "/" and not path.startswith(OPEN))):
            raise Refusal(403, "the request comes from another site")
        if self._visitors.closed and not told and not session and not path.startswith(OPEN):
            raise Refusal(401, "an access token is needed: log in, or send it as a Bearer", _BEARER)
        if request.method not in SAFE:
            self._must_be_meant(request, host, session, told)

    def _told(self, request: Request) -> bool:
        """Was the access token itself sent? A wrong one is an attempt."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._visitors.closed:
            return False
        judge(self._visitors, request, given.strip())
        return True

    def _must_be_meant(self, request: Request, host: str, session: str, told: bool) -> None:
        origin = request.headers.get("origin")
        if origin is not None and _netloc(origin) != host.lower():
            raise Refusal(403, "the request comes from another site")
        if told:
            return
        if origin is None:
            raise Refusal(403, "a change needs the header Origin, or the access token")
        if self._path(request) == "/login":
            return  # there is no session yet, and whoever sends the right token may have one
        if not self._visitors.asked_by_page(session, request.headers.get("x-csrf-token", "")):
            raise Refusal(403, "a change needs the header X-CSRF-Token, as GET api/v1/session tells it")


def judge(visitors: Visitors, request: Request, token: str) -> None:
    """Refuses a wrong access token, and every token of who guessed too often."""
    who = client(request)
    if wait := visitors.attempts.wait(who):
        seconds = int(wait) + 1
        raise Refusal(429, f"too many wrong tokens: again in {seconds} seconds", {"retry-after": str(seconds)})
    if not visitors.proves(token):
        visitors.attempts.failed(who)
        raise Refusal(401, "this is not the access token", _BEARER)
    visitors.attempts.proved(who)


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # no URL
        return None


_BEARER = {"www-authenticate": 'Bearer realm="quorumlock"'}


def _armoured(send: Send) -> Send:
    async def armoured(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return armoured
