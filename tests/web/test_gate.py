"""Who may look and who may change: each rule has a request that only it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import quorumlock as ql
from quorumlock.web.gate import HEADERS
from quorumlock.web.settings import WebSettings, bare
from quorumlock.web.visitors import SESSION_LIFE, SESSIONS_MOST, Attempts, Visitors

from .conftest import MakeSite
from .site import TOKEN, Site, served

BREAK = "api/v1/lock/break"


@pytest.fixture(scope="module")
def locks() -> Iterator[ql.Locker]:
    with ql.connect("memory://gate?nodes=3") as locker:
        yield locker


@pytest.fixture(scope="module")
def site(locks: ql.Locker) -> Iterator[Site]:
    """One for all, as no rule remembers a visitor here."""
    with served(locks, allow_break=True, allowed_hosts=frozenset({"locks.example"})) as site:
        yield site


@pytest.fixture(scope="module")
def closed(locks: ql.Locker) -> Iterator[Site]:
    """One that wants a token; nobody may guess here, or all others wait."""
    with served(locks, token=TOKEN, allow_break=True) as site:
        yield site


def status(answer: httpx.Response) -> int:
    return answer.status_code


# Headers


@pytest.mark.parametrize(
    "path", ["./", "login", "static/main.js", "static/none", "api/v1/locks", "api/v1/lock", "metrics", "nothing"]
)
def test_every_answer_is_armoured(site: Site, path: str) -> None:
    answer = site.visitor().get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "server" not in answer.headers


def test_a_refusal_is_armoured_too(site: Site) -> None:
    answer = site.visitor().get("./", headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert answer.headers["x-frame-options"] == "DENY"


def test_files_outside_are_out_of_reach(site: Site) -> None:
    for path in ("static/../app.py", "static/..%2fapp.py", "static/%2e%2e/app.py", "static//etc/passwd"):
        assert site.visitor().get(path).status_code == 404


# Host: DNS rebinding


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.7", "", "[::"]
)
def test_a_strange_host_is_refused(site: Site, host: str) -> None:
    answer = site.visitor().get("api/v1/locks", headers={"host": host})
    assert answer.status_code in (400, 421)
    assert "locks" not in answer.text


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST:99", "[::1]:8731", "locks.example"]
)
def test_a_name_of_ours_is_known(site: Site, host: str) -> None:
    assert status(site.visitor().get("api/v1/session", headers={"host": host})) == 200


def test_bound_elsewhere_any_number_is_ours_and_no_name() -> None:
    settings = WebSettings(host="0.0.0.0", token=TOKEN)
    assert settings.knows("10.0.0.7:8731")
    assert settings.knows("[fe80::1]:8731")
    assert not settings.knows("evil.example")
    assert WebSettings(host="box", token=TOKEN).knows("BOX:80")
    assert bare("[::1]:80") == "::1"


# The access token


@pytest.mark.parametrize(
    "path", ["api/v1/locks", "api/v1/session", "api/v1/stream", "api/v1/openapi.json", "metrics"]
)
def test_without_the_token_nothing_is_told(closed: Site, path: str) -> None:
    answer = closed.visitor().get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert set(answer.json()) == {"error"}


def test_a_visitor_is_sent_to_the_door(closed: Site) -> None:
    answer = closed.visitor().get("./")
    assert answer.status_code == 303
    assert answer.headers["location"] == "login"
    assert "Access token" in closed.visitor().get("login").text


def test_a_program_sends_the_token_itself(make_site: MakeSite) -> None:
    site = make_site(token=TOKEN, allow_break=True)
    program = site.visitor(headers={"authorization": f"Bearer {TOKEN}"})
    assert status(program.get("api/v1/locks")) == 200
    assert status(program.get("metrics")) == 200
    assert status(program.post(BREAK, json={"name": "a"})) == 200
    evil = {"origin": "http://evil.example"}
    assert status(program.post(BREAK, json={"name": "a"}, headers=evil)) == 403, "not even then from another site"
    wrong = site.visitor(headers={"authorization": f"Bearer {TOKEN}x"})
    assert status(wrong.get("api/v1/locks")) == 401


def test_a_session_begins_at_the_door_and_ends_with_logout(make_site: MakeSite) -> None:
    site = make_site(token=TOKEN)
    visitor = site.visitor(headers={"origin": site.origin})
    answer = visitor.post("login", data={"token": "wrong"})
    assert answer.status_code == 401
    assert "not the access token" in answer.text
    assert "set-cookie" not in answer.headers
    answer = visitor.post("login", data={"token": TOKEN})
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert status(visitor.get("./")) == 200
    csrf = visitor.get("api/v1/session").json()["csrf"]
    stolen = dict(visitor.cookies)
    assert status(visitor.post("logout", headers={"x-csrf-token": csrf})) == 200
    assert status(site.visitor(cookies=stolen).get("api/v1/locks")) == 401, (
        "the session is over, not only the cookie"
    )


def test_wrong_tokens_are_limited(make_site: MakeSite) -> None:
    site = make_site(token=TOKEN)
    inside = site.page()
    guesser = site.visitor(headers={"origin": site.origin})
    answers = [guesser.post("login", data={"token": f"guess {n}"}).status_code for n in range(7)]
    assert answers == [401] * 5 + [429] * 2
    late = guesser.post("login", data={"token": TOKEN})
    assert late.status_code == 429, "also the right one: or guessing would go on"
    assert 0 < int(late.headers["retry-after"]) <= 61
    assert status(site.visitor(headers={"authorization": f"Bearer {TOKEN}"}).get("metrics")) == 429
    assert status(inside.get("api/v1/locks")) == 200, "who is inside stays inside"


def test_attempts_are_forgotten_after_a_while() -> None:
    now = 0.0
    attempts = Attempts(lambda: now, each=2, together=3, window=60)
    attempts.failed("a")
    assert attempts.wait("a") == 0
    now = 10.0
    attempts.failed("a")
    assert attempts.wait("a") == 50
    assert attempts.wait("b") == 0
    attempts.failed("b")
    assert attempts.wait("c") == 50, "all together"
    attempts.proved("d")
    assert attempts.wait("d") == 0, "but for who has proved it"
    now = 61.0
    assert attempts.wait("a") == attempts.wait("c") == 0


def test_a_session_ends_by_itself_and_there_are_not_too_many() -> None:
    now = 0.0
    visitors = Visitors(TOKEN, lambda: now)
    first = visitors.open()
    assert visitors.known(first)
    assert not visitors.known("")
    now = SESSION_LIFE + 1
    assert not visitors.known(first)
    second = visitors.open()
    for _ in range(SESSIONS_MOST):
        visitors.open()
    assert not visitors.known(second)


# Changes: Origin, CSRF, --allow-break


def test_a_page_of_ours_breaks_a_lock(site: Site, locks: ql.Locker) -> None:
    lease = locks.lock("a").acquire()
    answer = site.page().post(BREAK, json={"name": "a"})
    assert answer.json()["broken"] is True
    assert locks.inspect("a").state == "free"
    assert not lease.held
    lease.release()


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "http://[", "", "https://127.0.0.1"],
)
def test_another_site_changes_nothing(site: Site, locks: ql.Locker, origin: str) -> None:
    with locks.lock("a"):
        page = site.page()
        assert status(page.post(BREAK, json={"name": "a"}, headers={"origin": origin})) == 403


def test_without_origin_nothing_is_changed(site: Site) -> None:
    page = site.page()
    del page.headers["origin"]
    assert status(page.post(BREAK, json={"name": "a"})) == 403


def test_what_the_browser_knows_to_be_foreign_changes_nothing(site: Site) -> None:
    page = site.page()
    assert status(page.post(BREAK, json={"name": "a"}, headers={"sec-fetch-site": "same-origin"})) == 200
    assert status(page.post(BREAK, json={"name": "a"}, headers={"sec-fetch-site": "same-site"})) == 403


@pytest.mark.parametrize("path", [BREAK, "logout"])
def test_without_the_csrf_token_nothing_is_changed(site: Site, path: str) -> None:
    page = site.page()
    other = site.page().headers["x-csrf-token"]
    for csrf in ("", "x", other):
        assert status(page.post(path, json={"name": "a"}, headers={"x-csrf-token": csrf})) == 403
    page.cookies.clear()
    assert status(page.post(path, json={"name": "a"})) == 403, "nor without the session that it belongs to"


def test_a_form_of_another_site_cannot_log_somebody_in(closed: Site) -> None:
    answer = closed.visitor(headers={"origin": "http://evil.example"}).post("login", data={"token": TOKEN})
    assert answer.status_code == 403


def test_a_dashboard_only_looks_unless_told(make_site: MakeSite, locks: ql.Locker) -> None:
    page = make_site().page()
    assert page.get("api/v1/session").json()["can_break"] is False
    with locks.lock("a"):
        answer = page.post(BREAK, json={"name": "a"})
        assert answer.status_code == 403
        assert "--allow-break" in answer.json()["error"]


def test_a_body_is_json_and_small(site: Site) -> None:
    page = site.page()
    assert status(page.post(BREAK, content=b'{"name": "a"}', headers={"content-type": "text/plain"})) == 415
    assert status(page.post(BREAK, json={"name": "a" * 20_000})) == 413
    assert status(page.post(BREAK, content=b"{", headers={"content-type": "application/json"})) == 400


# Behind a proxy


@pytest.mark.parametrize("kept", [True, False])
def test_behind_a_path_whether_the_proxy_keeps_it_or_not(make_site: MakeSite, kept: bool) -> None:
    site = make_site(root_path="/ops/locks", allow_break=True, token=TOKEN)
    root = "/ops/locks" if kept else ""
    visitor = site.visitor(headers={"origin": site.origin})
    base = f"{site.origin}{root}"
    assert visitor.get(f"{base}/static/main.js").status_code == 200
    assert visitor.get(f"{base}/").headers["location"] == "login", (
        "relative: it is right on both sides of the proxy"
    )
    answer = visitor.post(f"{base}/login", data={"token": TOKEN})
    assert "Path=/ops/locks/" in answer.headers["set-cookie"]
    assert visitor.get(f"{site.origin}/ops/locks/api/v1/session").status_code == 200
    if kept:
        assert visitor.get(f"{site.origin}/ops/locks").headers["location"] == "/ops/locks/"
