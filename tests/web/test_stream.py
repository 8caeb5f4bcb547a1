"""Who is told what changes: how many, for how long, and for whom the fleet is looked at."""

from __future__ import annotations

import json
import logging
import socket
from contextlib import ExitStack
from itertools import count

import pytest

import quorumlock as ql
from quorumlock.web.stream import EACH_MOST, STREAMS_MOST
from tests.support.waiting import eventually

from .conftest import MakeSite
from .site import TOKEN, Site, messages

pytestmark = pytest.mark.real_time


def test_a_stream_ends_with_the_session_and_tells_nothing_more(make_site: MakeSite, locks: ql.Locker) -> None:
    site = make_site(token=TOKEN, every=0.5)
    page = site.page()
    with page.stream("GET", "api/v1/stream") as answer:
        told = messages(answer)
        next(told)
        assert page.post("logout").status_code == 200
        with locks.lock("secret-after-logout"):
            assert "secret-after-logout" not in json.dumps(list(told)), "and the loop ends"


def opened(site: Site, number: int, cookie: str) -> socket.socket:
    """Asks for a stream, and waits for nothing."""
    connection = socket.create_connection(("127.0.0.1", site.settings.port))
    head = f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nCookie: {site.settings.cookie}={cookie}{number}"
    connection.sendall(f"{head}\r\n\r\n".encode())
    return connection


def statuses(site: Site, how_many: int, each: int) -> list[int]:
    """Of streams that are asked for at once; `each`: so many of one session."""
    with ExitStack() as stack:
        asked = [stack.enter_context(opened(site, n // each, "visitor-")) for n in range(how_many)]
        for connection in asked:
            connection.settimeout(30)
        return [int(connection.recv(4096).split()[1]) for connection in asked]


def test_there_are_so_many_streams_and_no_more(site: Site) -> None:
    assert sorted(statuses(site, STREAMS_MOST + 20, 5)) == [200] * STREAMS_MOST + [503] * 20
    assert eventually(lambda: site.dashboard.sampler.watchers == 0)
    assert sorted(statuses(site, EACH_MOST + 3, 99)) == [200] * EACH_MOST + [503] * 3, "nor has one visitor all"
    assert eventually(lambda: site.dashboard.sampler.watchers == 0)
    assert statuses(site, 1, 99) == [200], "and places are given back"


def test_a_page_of_another_site_may_link_to_us_and_ask_for_nothing_else(site: Site) -> None:
    visitor = site.visitor()

    def status(path: str, where: str) -> int:
        return visitor.get(path, headers={"sec-fetch-site": where}).status_code

    for where in ("cross-site", "same-site"):
        for path in ("api/v1/locks", "metrics", "api/v1/openapi.json", "api/v1/stream"):
            assert status(path, where) == 403, path
        assert [status(path, where) for path in ("./", "static/icon.svg", "login")] == [200, 200, 303]
    for own in ("same-origin", "none"):
        assert status("api/v1/locks", own) == 200


def test_who_scrapes_metrics_does_not_watch(make_site: MakeSite) -> None:
    site = make_site(every=0.1)
    board = site.dashboard.sampler.board
    assert eventually(lambda: board.version == 1)
    assert site.visitor().get("metrics").status_code == 200
    assert not eventually(lambda: board.version > 2, within=0.5), "in five times as long as between two samples"


def test_metrics_tell_nothing_that_was_never_learnt(make_site: MakeSite) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with ql.connect(f"redis://127.0.0.1:{port}") as nobody:
        site = make_site(locks=nobody)
        text = site.visitor().get("metrics").text
    assert "quorumlock_fleet_sample_failed 1\n" in text
    assert "quorumlock_locks_" not in text


def test_a_look_that_is_a_mistake_of_our_own_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = count()

    def fails(*_: object) -> None:
        next(asked)
        raise KeyError("secret")

    assert site.get("api/v1/overview")["problem"] == ""
    monkeypatch.setattr(site.locks, "survey", fails)
    with caplog.at_level(logging.WARNING):
        assert eventually(lambda: "KeyError" in site.get("api/v1/overview")["problem"])
        assert "quorumlock_fleet_sample_failed 1\n" in site.visitor().get("metrics").text
        before = next(asked)
        assert eventually(lambda: next(asked) > before + 5)
    assert caplog.text.count("Traceback") == 1, "and not with every look"
    monkeypatch.undo()
    assert eventually(lambda: site.get("api/v1/overview")["problem"] == "")
