"""The files of the dashboard, and its front door."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from .answers import Refusal, answer, body
from .gate import judge

if TYPE_CHECKING:
    from .settings import WebSettings
    from .visitors import Visitors

FILES = Path(__file__).parent / "static"
FRESH = {"cache-control": "no-cache"}


class Pages:
    """Every page is one file, which asks the API for the rest; the login page needs no script."""

    def __init__(self, settings: WebSettings, visitors: Visitors) -> None:
        self._settings, self._visitors = settings, visitors

    async def home(self, request: Request) -> Response:
        """The dashboard. Where nobody logs in, a browser gets a session here: a CSRF token belongs to one."""
        response = HTMLResponse((FILES / "index.html").read_bytes(), headers=FRESH)
        if not request.state.session and not self._visitors.closed:
            self._give(request, response)
        return response

    async def login(self, request: Request) -> Response:
        if not self._visitors.closed or request.state.session:
            return RedirectResponse("./", 303)
        if request.method != "POST":
            return _form()
        fields = parse_qs((await body(request)).decode("utf-8", "replace"))
        try:
            judge(self._visitors, request, fields.get("token", [""])[0])
        except Refusal as refusal:
            return _form(refusal.reason, refusal.status, refusal.headers)
        response = RedirectResponse("./", 303)
        self._give(request, response)
        return response

    async def logout(self, request: Request) -> Response:
        self._visitors.close(request.state.session)
        response = answer({})
        response.delete_cookie(self._settings.cookie, path=f"{self._settings.root_path}/")
        return response

    def _give(self, request: Request, response: Response) -> None:
        response.set_cookie(
            self._settings.cookie,
            self._visitors.open(),
            path=f"{self._settings.root_path}/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


def _form(problem: str = "", status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = (FILES / "login.html").read_text(encoding="utf-8").replace("<!-- problem -->", escape(problem))
    return HTMLResponse(text, status, {**(headers or {}), **FRESH})
