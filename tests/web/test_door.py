"""Who is believed to be where, who is kept out, and connections on which nothing comes to an end."""

from __future__ import annotations

import logging
import socket
import time

import pytest

import quorumlock as ql
from quorumlock.errors import ConfigurationError
from quorumlock.web import settings as module
from quorumlock.web.settings import WebSettings
from tests.support.waiting import eventually

from .conftest import MakeSite
from .site import SOON, TOKEN, Site

pytestmark = pytest.mark.real_time

BREAK = "api/v1/lock/break"


def trusted(*proxies: str) -> dict[str, object]:
    return {"trusted_proxies": tuple(map(module.network, proxies))}


def broken_by(site: Site, locks: ql.Locker, forwarded: str) -> str:
    """Breaks a lock, and tells who is said to have done it."""
    lease = locks.lock(f"lock {len(forwarded)}").acquire()
    page = site.page()
    assert page.post(BREAK, json={"name": lease.name}, headers={"x-forwarded-for": forwarded}).json()["broken"]
    lease.release()
    told = {"name": lease.name, "what": "broken"}
    assert eventually(lambda: page.get("api/v1/events", params=told).json()["events"])
    return str(page.get("api/v1/events", params=told).json()["events"][0]["who"])


def test_nobody_says_for_himself_where_he_is(site: Site, locks: ql.Locker) -> None:
    assert broken_by(site, locks, "10.0.0.99") == "dashboard@127.0.0.1"


def test_a_proxy_that_was_named_is_believed_what_makes_sense(
    make_site: MakeSite, locks: ql.Locker, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site(allow_break=True, **trusted("127.0.0.0/8"))
    for forwarded, found in {
        "10.0.0.99": "10.0.0.99",
        "6.6.6.6, 10.0.0.98, 127.0.0.1": "10.0.0.98",  # the first was written by a stranger
        "[2001:db8::7]:99": "2001:db8::7",
        "x" * 3000: "127.0.0.1",
        "": "127.0.0.1",
    }.items():
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert broken_by(site, locks, forwarded) == f"dashboard@{found}"
        assert ("via 127.0.0.1" in caplog.text) is (found != "127.0.0.1")


@pytest.mark.parametrize(("proxy", "secure"), [("127.0.0.1", True), ("10.0.0.1", False)])
def test_only_a_proxy_that_was_named_makes_a_cookie_secure(make_site: MakeSite, proxy: str, secure: bool) -> None:
    site = make_site(token=TOKEN, **trusted(proxy))
    headers = {"origin": site.origin, "x-forwarded-proto": "https"}
    answer = site.visitor(headers=headers).post("login", data={"token": TOKEN})
    assert ("; Secure" in answer.headers["set-cookie"]) is secure


def test_no_name_is_a_trusted_proxy() -> None:
    with pytest.raises(ConfigurationError, match="no address"):
        module.network("proxy.example.org")


def test_guesses_of_others_keep_out_nobody_who_has_the_token(make_site: MakeSite) -> None:
    site = make_site(token=TOKEN, **trusted("127.0.0.1"))

    def asked(token: str, address: str) -> int:
        headers = {"authorization": f"Bearer {token}", "x-forwarded-for": address}
        return visitor.get("metrics", headers=headers).status_code

    visitor = site.visitor()
    assert asked(TOKEN, "10.1.0.1") == 200
    guesses = [asked("guess", f"10.0.0.{n}") for n in range(52)]
    assert guesses == [401] * 50 + [429] * 2
    assert asked(TOKEN, "10.1.0.1") == 200, "it has proved the token before"
    assert asked(TOKEN, "10.1.0.2") == 429, "nobody knows this one"
    assert [asked("guess", "10.1.0.1") for _ in range(6)] == [401] * 5 + [429], "but it may not guess, either"


def ended(connection: socket.socket, said: bytes = b"") -> bool:
    """Does the server end it, though something is said again and again?"""
    connection.settimeout(0.1)
    until = time.monotonic() + SOON
    while time.monotonic() < until:
        try:
            connection.sendall(said)
            if not connection.recv(65536):
                return True
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return True
    return False


HEAD = "GET /api/v1/session HTTP/1.1\r\nHost: localhost\r\n"


UNENDING = {
    "silence": ("", ""),
    "half a head": (HEAD, "x"),
    "half of the second": (f"{HEAD}\r\n{HEAD}", "x"),
    "a body that nobody reads": (f"{HEAD}Content-Length: 999999\r\n\r\n", "x"),
}


def test_a_connection_without_a_whole_request_is_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorumlock.web.patience.ASKING", 0.3)
    for what, (first, then) in UNENDING.items():
        with socket.create_connection(("127.0.0.1", site.settings.port)) as connection:
            connection.sendall(first.encode())
            assert ended(connection, then.encode()), what


def test_a_body_comes_to_an_end(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorumlock.web.patience.ASKING", 0.3)
    site = make_site(token=TOKEN)
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{site.settings.port}\r\nOrigin: {site.origin}"
    with socket.create_connection(("127.0.0.1", site.settings.port)) as connection:
        connection.sendall(f"{head}\r\nContent-Length: 999999\r\n\r\ntoken=".encode())
        connection.settimeout(SOON)
        assert b" 408 " in connection.recv(65536)
        assert ended(connection, b"x")


def test_who_goes_away_in_the_middle_is_no_mistake_of_ours(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    page = site.page()
    head = f"POST /{BREAK} HTTP/1.1\r\nHost: 127.0.0.1:{site.settings.port}\r\nContent-Type: application/json"
    named = {"origin": site.origin, "x-csrf-token": page.headers["x-csrf-token"]}
    named["cookie"] = "; ".join(f"{name}={value}" for name, value in page.cookies.items())
    head += "".join(f"\r\n{name}: {value}" for name, value in named.items())
    with socket.create_connection(("127.0.0.1", site.settings.port)) as connection:
        connection.sendall(f"{head}\r\nContent-Length: 99\r\n\r\n{{".encode())
        assert eventually(lambda: site.server.server_state.tasks), "it waits for the rest"
    assert eventually(lambda: not site.server.server_state.tasks)
    page.get("api/v1/session")
    assert [record.getMessage() for record in caplog.records] == []


def test_who_takes_nothing_is_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor asks for more than fits into the buffers on the way, and reads none of it."""
    monkeypatch.setattr("quorumlock.web.patience.READING", 0.3)

    def ask_for_ever() -> None:
        while True:
            connection.sendall(asked)

    asked = (HEAD.replace("api/v1/session", "static/style.css") + "\r\n").encode() * 100
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", site.settings.port))
        connection.settimeout(SOON)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            ask_for_ever()


def test_a_dashboard_that_others_reach_without_a_token_is_known_as_such() -> None:
    assert not WebSettings().exposed
    assert WebSettings(root_path="/locks").exposed
    assert WebSettings(allowed_hosts=frozenset({"locks.example"})).exposed
    assert not WebSettings(root_path="/locks", token=TOKEN).exposed
