"""Carries questions to the hosts of a cluster over HTTP: in the calling thread, or on an event loop.

Retries and redirects of the HTTP client are off, and so are proxies of the environment: who is asked, and how
often, is decided in `talk.py`. The client is imported when it is first needed: that takes longer than many a lock
is held.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ConfigurationError
from .place import Place
from .talk import Post, Reply, Steps

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise ConfigurationError("etcd:// needs the extra: pip install 'quorumlock[etcd]'") from None
    return httpx


def _options(place: Place) -> dict[str, Any]:
    limits = _httpx().Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30.0)
    return {"verify": place.trust(), "limits": limits, "trust_env": False, "follow_redirects": False}


def _headers(post: Post) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if post.token:
        headers["Authorization"] = post.token
    return headers


def _failed(error: Exception) -> Reply:
    """What an error of the HTTP client means: had anything been sent?"""
    httpx = _httpx()
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return Reply(0, sent=False, late=True, why="no connection in time")
    if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return Reply(0, sent=False, why=_short(error))
    if "CERTIFICATE" in str(error).upper():  # theirs, or the lack of ours: nothing was looked at
        return Reply(0, sent=False, why=_short(error))
    if isinstance(error, httpx.TimeoutException):
        return Reply(0, late=True, why="no answer in time")
    return Reply(0, why=_short(error))


def _short(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.removeprefix("[Errno 111] ")[:200]


class Client:
    """For threads; used by any number of them."""

    def __init__(self, place: Place, connect_timeout: float) -> None:
        self._place = place
        self._connect_timeout = connect_timeout
        self._http: httpx.Client = _httpx().Client(**_options(place))

    def drive(self, steps: Steps[T]) -> T:
        reply: Reply | None = None
        while True:
            try:
                wanted = steps.send(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(wanted, float):
                time.sleep(wanted)
                reply = None
            else:
                reply = self._post(wanted)

    def _post(self, post: Post) -> Reply:
        httpx = _httpx()
        timeout = httpx.Timeout(post.timeout, connect=min(post.timeout, self._connect_timeout))
        url = self._place.address(post.host) + post.path
        try:
            answer = self._http.post(url, content=post.body, headers=_headers(post), timeout=timeout)
        except httpx.HTTPError as error:
            return _failed(error)
        except RuntimeError:
            if not self._http.is_closed:
                raise
            return Reply(0, sent=False, why="closed by this client")
        return Reply(answer.status_code, answer.content)

    def close(self) -> None:
        self._http.close()


class AsyncClient:
    """For one event loop."""

    def __init__(self, place: Place, connect_timeout: float) -> None:
        self._place = place
        self._connect_timeout = connect_timeout
        self.http: httpx.AsyncClient = _httpx().AsyncClient(**_options(place))

    async def drive(self, steps: Steps[T]) -> T:
        reply: Reply | None = None
        while True:
            try:
                wanted = steps.send(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(wanted, float):
                await asyncio.sleep(wanted)
                reply = None
            else:
                reply = await self._post(wanted)

    async def _post(self, post: Post) -> Reply:
        httpx = _httpx()
        timeout = httpx.Timeout(post.timeout, connect=min(post.timeout, self._connect_timeout))
        url = self._place.address(post.host) + post.path
        try:
            answer = await self.http.post(url, content=post.body, headers=_headers(post), timeout=timeout)
        except httpx.HTTPError as error:
            return _failed(error)
        return Reply(answer.status_code, answer.content)

    def watching(self, host: int, body: bytes, token: str) -> Any:
        """A stream of events. It may be silent for ever: whether its host is alive is asked in other ways."""
        httpx = _httpx()
        timeout = httpx.Timeout(None, connect=self._connect_timeout, write=self._connect_timeout)
        url = f"{self._place.address(host)}/v3/watch"
        post = Post(host, "/v3/watch", body, token, 0.0)
        return self.http.stream("POST", url, content=body, headers=_headers(post), timeout=timeout)

    async def close(self) -> None:
        await self.http.aclose()
