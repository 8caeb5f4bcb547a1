"""Who may look: the access token, the sessions of browsers, and how often somebody may guess."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SESSION_LIFE = 12 * 3600.0
SESSIONS_MOST = 1000
CLIENTS_MOST = 1000
PROVED_LIFE = 24 * 3600.0


class Attempts:
    """Limits wrong guesses: of each client, and of all together, in a window of time.

    Who has proved the token of late is not kept out by guesses from elsewhere. Behind a proxy that is not trusted
    all clients have one address; then all of them wait. Sessions that are open go on.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, each: int = 5, together: int = 50, window: float = 60.0
    ) -> None:
        self._clock, self._each, self._window = clock, each, window
        self._all: deque[float] = deque(maxlen=together)
        self._clients: OrderedDict[str, deque[float]] = OrderedDict()
        self._proved: OrderedDict[str, float] = OrderedDict()

    def wait(self, client: str) -> float:
        """Seconds until this client may try again; 0: now."""
        known = self._clients.get(client)
        trusted = self._proved.get(client, -PROVED_LIFE) > self._clock() - PROVED_LIFE
        return max(self._left(known) if known else 0.0, 0.0 if trusted else self._left(self._all))

    def failed(self, client: str) -> None:
        now = self._clock()
        self._all.append(now)
        self._clients.setdefault(client, deque(maxlen=self._each)).append(now)
        _newest(self._clients, client)  # the limit for all together holds, whatever is forgotten

    def proved(self, client: str) -> None:
        self._proved[client] = self._clock()
        _newest(self._proved, client)

    def _left(self, times: deque[float]) -> float:
        full = len(times) == times.maxlen
        return max(0.0, times[0] + self._window - self._clock()) if full else 0.0


def _newest(known: OrderedDict[str, T], client: str) -> None:
    """Moves one to the end, and forgets the oldest."""
    known.move_to_end(client)
    while len(known) > CLIENTS_MOST:
        known.popitem(last=False)


class Visitors:
    """Knows the access token, if there is one, and the browsers that gave it."""

    def __init__(self, token: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._wanted = None if token is None else self._digest(token)
        self._sessions: OrderedDict[str, float] = OrderedDict()
        self.attempts = Attempts(clock)

    @property
    def closed(self) -> bool:
        """Must a visitor show a token?"""
        return self._wanted is not None

    def proves(self, token: str) -> bool:
        """Is this the access token? It takes as long to say no as to say yes."""
        return self._wanted is not None and hmac.compare_digest(self._digest(token), self._wanted)

    def open(self) -> str:
        """A new session."""
        session = secrets.token_urlsafe(32)
        self._sessions[session] = self._clock() + SESSION_LIFE
        while len(self._sessions) > SESSIONS_MOST:
            self._sessions.popitem(last=False)
        return session

    def close(self, session: str) -> None:
        self._sessions.pop(session, None)

    def known(self, session: str) -> bool:
        """Where no token is asked for, a cookie only ties a page to its CSRF token, and any will do."""
        return bool(session) and (not self.closed or self._sessions.get(session, 0.0) > self._clock())

    def csrf(self, session: str) -> str:
        """What a page must say with every change: another site can send the cookie, but cannot know this."""
        return hmac.new(self._key, b"csrf " + session.encode(), hashlib.sha256).hexdigest()

    def asked_by_page(self, session: str, csrf: str) -> bool:
        return bool(session) and hmac.compare_digest(self.csrf(session).encode(), csrf.encode())

    def _digest(self, token: str) -> bytes:
        return hmac.new(self._key, token.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
