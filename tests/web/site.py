"""A dashboard that really runs: uvicorn on a free port of loopback, in a thread of the test."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

import quorumlock
from quorumlock.web.app import Dashboard
from quorumlock.web.server import Server, listening
from quorumlock.web.settings import WebSettings
from tests.support.waiting import eventually

TOKEN = "correct horse battery staple"
SOON = 30.0


@dataclass
class Site:
    """What a test needs to visit a dashboard."""

    url: str
    locks: quorumlock.Locker
    settings: WebSettings
    dashboard: Dashboard
    server: Server
    clients: list[httpx.Client] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    def visitor(self, **options: Any) -> httpx.Client:
        """A browser without a screen: it keeps cookies."""
        client = httpx.Client(base_url=self.url, timeout=SOON, **options)
        self.clients.append(client)
        return client

    def page(self) -> httpx.Client:
        """A visitor who has opened the page, and sends what pages send with a change."""
        client = self.visitor()
        client.headers["origin"] = self.origin
        if self.settings.token:
            client.post("login", data={"token": self.settings.token})
        else:
            client.get("./")
        client.headers["x-csrf-token"] = client.get("api/v1/session").json()["csrf"]
        return client

    def get(self, path: str, **params: Any) -> Any:
        answer = self.visitor().get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def served(locks: quorumlock.Locker, *, breaker: quorumlock.Locker | None = None, **options: Any) -> Iterator[Site]:
    """Serves a Locker for the length of the block."""
    options.setdefault("every", 0.1)
    with listening("127.0.0.1", options.pop("port", 0)) as ear:
        settings = WebSettings(port=ear.getsockname()[1], **options)
        dashboard = Dashboard(locks, settings, breaker)
        server = Server(dashboard)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[ear])), name="dashboard")
        thread.start()
        site = Site(f"http://127.0.0.1:{settings.port}{settings.root_path}/", locks, settings, dashboard, server)
        try:
            assert eventually(lambda: server.started), "the dashboard did not start"
            yield site
        finally:
            for client in site.clients:
                client.close()
            server.should_exit = True
            thread.join(SOON)
            assert not thread.is_alive(), "the dashboard did not end"


def messages(answer: httpx.Response) -> Iterator[dict[str, object]]:
    """What a stream tells."""
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def secrets_in(text: str) -> list[str]:
    """What looks like the token of a lock."""
    return re.findall(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])", text)
