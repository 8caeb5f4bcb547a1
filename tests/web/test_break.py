"""Breaks that must not be, breaks that fail, and what is said of them."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

import quorumlock as ql
from tests.support.waiting import eventually

from .conftest import MakeSite
from .site import Site

pytestmark = pytest.mark.real_time

BREAK = "api/v1/lock/break"


def test_only_the_hold_that_was_seen_is_broken(site: Site, locks: ql.Locker) -> None:
    with locks.lock("a") as lease:
        for seen in (lease.fence - 1, 0, None):  # 0: nobody held it, None: somebody without a fence
            answer = site.page().post(BREAK, json={"name": "a", "fence": seen})
            assert answer.status_code == 409
    answer = site.page().post(BREAK, json={"name": "a", "fence": lease.fence})
    assert answer.json()["broken"] is False, "a lock that is free is not broken"


def test_who_comes_after_the_first_look_is_not_broken(
    site: Site, locks: ql.Locker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = site.dashboard.sampler.source
    inspect, leases = source.inspect, [locks.lock("a").acquire()]

    def inspected(name: str) -> ql.Inspection:
        found = inspect(name)
        if len(leases) == 1:  # just when it was looked at, it goes from one to the next
            leases[0].release()
            leases.append(locks.lock("a").acquire())
        return found

    monkeypatch.setattr(source, "inspect", inspected)
    assert site.page().post(BREAK, json={"name": "a", "fence": leases[0].fence}).status_code == 409
    assert leases[1].held
    leases[1].release()


def test_a_lock_that_is_only_closed_may_be_opened(site: Site, locks: ql.Locker) -> None:
    locks.lock("a", at_least=30).acquire().release()
    assert site.page().post(BREAK, json={"name": "a", "fence": 0}).json()["broken"]
    with locks.lock("a", timeout=0):
        pass


def test_a_break_that_fails_is_answered_and_told(
    make_site: MakeSite, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes into the file, and does not come to an end."""
    monkeypatch.setattr("quorumlock.engines.sqlite.engine.PATIENCE", 0.3)
    with ql.connect(f"sqlite:///{tmp_path}/locks.db") as locks:
        lease = locks.lock("a", ttl=60, keep=False).acquire()
        page = make_site(locks=locks, allow_break=True).page()
        with sqlite3.connect(tmp_path / "locks.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            with caplog.at_level(logging.WARNING):
                answer = page.post(BREAK, json={"name": "a", "fence": lease.fence})
            other.execute("ROLLBACK")
        assert answer.status_code == 503
        assert set(answer.json()) == {"error"}
        assert "dashboard@127.0.0.1 failed to break 'a'" in caplog.text
        assert "Traceback" not in caplog.text
        lease.release()


def test_a_mistake_of_our_own_is_answered_and_told_in_one_line(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("quorumlock.web.timeline.holds", lambda *_: 1 / 0)
    with caplog.at_level(logging.WARNING):
        answer = site.visitor().get("api/v1/lock", params={"name": "a"})
        assert eventually(lambda: caplog.records), "it is told when it is answered"
    assert answer.status_code == 500
    assert "its log has more" in answer.json()["error"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert [record.getMessage() for record in caplog.records] == [
        "GET '/api/v1/lock' failed: ZeroDivisionError('division by zero')"
    ]
    assert "Traceback" not in caplog.text


def test_what_a_holder_calls_itself_makes_no_line_of_the_log(
    site: Site, locks: ql.Locker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("quorumlock.web.view.who", lambda *_: "host\nquorumlock: forged\x1b[31m:1")
    lease = locks.lock("a").acquire()
    with caplog.at_level(logging.WARNING, "quorumlock.web"):
        assert site.page().post(BREAK, json={"name": "a"}).json()["broken"]
    said = [record.getMessage() for record in caplog.records if "held by" in record.getMessage()]
    assert len(said) == 1
    assert said[0].isprintable()
    lease.release()
