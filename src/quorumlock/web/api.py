"""The JSON API, `/api/v1/…`: what pages and programs ask for. Described in `openapi.py`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from .. import ConfigurationError, Inspection, LockError, LockHeld, __version__
from . import timeline, view
from .answers import Refusal, answer, json_body
from .board import LOST
from .parameters import Text, Whole, read
from .proxy import client
from .sampler import in_thread

if TYPE_CHECKING:
    from .sampler import Sampler
    from .settings import WebSettings
    from .visitors import Visitors

T = TypeVar("T")

LOOKS_MOST = 8
"""Locks that are asked for by name at one time: each takes a thread, and a round to the fleet."""
SORTS = ("name", "state", "who", "since", "fence", "waiting")
STATES = ("held", "shared", "closed", "contested")
WHAT = ("acquired", "released", "ended", "expired", "broken", "refused")
LOCKS = (
    Text("search", "only locks in whose name, holder or note this stands, in any case"),
    Text("state", "only locks of this state", choices=STATES),
    Text("sort", "what to sort by", "name", SORTS),
    Text("order", "ascending or descending", "asc", ("asc", "desc")),
    Whole("limit", "at most so many", 100, 1, 10_000),
    Whole("offset", "leave out so many first", 0, 0, 1_000_000),
)
LOCK = (Text("name", "of the lock", None),)
EVENTS = (
    Text("name", "only events of this lock"),
    Text("what", "only events of this kind", choices=WHAT),
    Whole("after", "only events with a greater id", 0, 0, 10**15),
    Whole("limit", "at most so many, the newest", 100, 1, 10_000),
)

ANOTHER = "by now somebody else holds it: look again"

log = logging.getLogger("quorumlock.web")


class Api:
    """One method for each address."""

    def __init__(self, sampler: Sampler, settings: WebSettings, visitors: Visitors) -> None:
        self._sampler, self._settings, self._visitors = sampler, settings, visitors
        self._looks = asyncio.Semaphore(LOOKS_MOST)

    async def session(self, request: Request) -> Response:
        """What this visitor may do, and the CSRF token for it."""
        session = request.state.session
        told = {
            "version": __version__,
            "can_break": self._settings.allow_break,
            "login": self._visitors.closed,
            "every": self._settings.every,
            "csrf": self._visitors.csrf(session) if session else None,
        }
        return answer(told)

    async def overview(self, request: Request) -> Response:
        """The state of everything in a few numbers."""
        board = await self._sampler.fresh()
        states = Counter(row["state"] for row in board.rows.values())
        told = {
            **_heading(board),
            "locks": len(board.rows),
            "states": {state: states[state] for state in STATES},
            "waiting": sum(row["waiting"] for row in board.rows.values()),
            "nodes": dict(Counter(node["state"] for node in board.nodes)),
            "rates": board.rates(),
            "beats": board.beats,
            "lost": board.lost(),
        }
        return answer(told)

    async def locks(self, request: Request) -> Response:
        """Locks that are held, or closed."""
        wanted = read(LOCKS, request.query_params)
        board = await self._sampler.fresh()
        text = wanted["search"].casefold()
        rows = [
            row
            for row in board.rows.values()
            if (not wanted["state"] or row["state"] == wanted["state"])
            and (not text or text in f"{row['name']}\n{row['who']}\n{row['note'] or ''}".casefold())
        ]
        key = wanted["sort"]
        rows.sort(key=lambda row: row["name"])
        rows.sort(key=lambda row: (row[key] is None, row[key] or 0) if key in ("since", "fence") else row[key])
        if wanted["order"] == "desc":
            rows.reverse()
        page = rows[wanted["offset"] : wanted["offset"] + wanted["limit"]]
        told = {**_heading(board), "total": len(board.rows), "matching": len(rows), "cut": board.cut, "locks": page}
        return answer(told)

    async def lock(self, request: Request) -> Response:
        """One lock, asked of every node now, with what is known of its past."""
        name = read(LOCK, request.query_params)["name"]
        board = await self._sampler.fresh()
        found = view.lock(await self._inspected(name))
        events = [event for event in board.events if event["name"] == name]
        told = {
            **_heading(board),
            "lock": found,
            "timeline": timeline.holds(events, found["holders"]),
            "events": events[-100:],
        }
        return answer(told)

    async def nodes(self, request: Request) -> Response:
        """Nodes, and how they were of late."""
        board = await self._sampler.fresh()
        return answer({**_heading(board), "nodes": board.nodes})

    async def events(self, request: Request) -> Response:
        """What happened, old to new."""
        wanted = read(EVENTS, request.query_params)
        board = await self._sampler.fresh()
        events = [
            event
            for event in board.events
            if event["id"] > wanted["after"]
            and (not wanted["name"] or event["name"] == wanted["name"])
            and (not wanted["what"] or event["what"] == wanted["what"])
        ]
        return answer({**_heading(board), "events": events[-wanted["limit"] :]})

    async def break_(self, request: Request) -> Response:
        """Forces a lock open: if breaking is allowed, and if it is still the hold that the visitor saw."""
        if not self._settings.allow_break:
            raise Refusal(403, "this dashboard only looks: start it with --allow-break")
        said = await json_body(request)
        name, fence = said.get("name"), said.get("fence")
        if not isinstance(name, str) or not name or set(said) - {"name", "fence"}:
            raise Refusal(400, 'the body must be {"name": …, "fence": …}')
        if fence is not None and (not isinstance(fence, int) or isinstance(fence, bool)):
            raise Refusal(400, "fence must be what was seen: an integer, 0 for nobody, null for who has none")
        seen = await self._inspected(name)
        found = view.lock(seen)
        if found["state"] == "free":
            return answer({"broken": False, "was": found})
        must_be_seen(said, found)
        by = f"dashboard@{client(request)}"
        told = f"{by} via {request.scope['via']}" if "via" in request.scope else by
        board = self._sampler.board

        def work() -> None:
            only = seen.fence if "fence" in said else None
            try:
                self._sampler.source.break_(name, fence=only, journalled=board.kept)
            except LockHeld:
                raise Refusal(409, ANOTHER) from None

        try:
            with board.breaking(name, found["holders"][0]["fence"] if found["holders"] else None, by):
                await self._done(by, work)
        except Refusal as refusal:
            if refusal.status != 409:
                log.warning("%s failed to break %r, or broke it on some nodes: %r", told, name, refusal.reason)
            raise
        holders = ", ".join(holder["who"] for holder in found["holders"])
        log.warning("%r, held by %r, was broken by %s", name, holders or "nobody", told)
        self._sampler.hurry()
        return answer({"broken": True, "was": found})

    async def _inspected(self, name: str) -> Inspection:
        async with self._looks:
            return await self._done("dashboard", lambda: self._sampler.source.inspect(name))

    async def _done(self, who: str, work: Callable[[], T]) -> T:
        """Asks the fleet for something; what goes wrong there is no mistake of ours."""
        try:
            return await in_thread(who, work)
        except ConfigurationError as error:
            raise Refusal(400, str(error)) from None
        except (LockError, OSError) as error:
            raise Refusal(503, str(error)) from None


def must_be_seen(said: view.Json, found: view.Json) -> None:
    """Whoever says which hold was seen breaks no other."""
    if "fence" in said and said["fence"] not in ([holder["fence"] for holder in found["holders"]] or [0]):
        raise Refusal(409, ANOTHER)


def _heading(board: Any) -> dict[str, Any]:
    """What every answer begins with: how old it is, and what is not known."""
    return {"at": board.at, "since": board.started, "journal": board.kept, "problem": board.problem}


__all__ = ["EVENTS", "LOCK", "LOCKS", "LOST", "STATES", "WHAT", "Api"]
