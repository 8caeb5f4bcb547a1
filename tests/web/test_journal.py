"""Where clients keep a journal, history is what nodes have written down, also from before the dashboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import quorumlock as ql
from tests.support.waiting import eventually

from .site import Site, served

pytestmark = pytest.mark.real_time


@pytest.fixture
def working() -> Iterator[ql.Locker]:
    """A client that keeps a journal."""
    with ql.connect("memory://web-journal?nodes=3", journal=1000) as locker:
        yield locker


@pytest.fixture
def site(working: ql.Locker) -> Iterator[Site]:
    with (
        ql.connect("memory://web-journal?nodes=3") as onlooker,
        served(onlooker, allow_break=True, breaker=working) as site,
    ):
        yield site


def events(site: Site, name: str) -> list[tuple[str, int | None]]:
    return [(one["what"], one["fence"]) for one in site.get("api/v1/events", name=name)["events"]]


@pytest.mark.parametrize("order", ["before", "after"])
def test_every_hold_is_told_and_how_it_ended(working: ql.Locker, order: str) -> None:
    """Also holds that were too short to be seen, and those from before the dashboard was started."""
    fences: list[int] = []

    def work() -> None:
        for _ in range(3):
            with working.lock("job") as lease:
                fences.append(lease.fence)

    if order == "before":
        work()
    with ql.connect("memory://web-journal?nodes=3") as onlooker, served(onlooker) as site:
        site.get("api/v1/overview")
        if order == "after":
            work()
        wanted = [(what, fence) for fence in fences for what in ("acquired", "released")]
        assert eventually(lambda: events(site, "job") == wanted)
        page = site.get("api/v1/lock", name="job")
        assert page["journal"] is True
        assert [(one["fence"], one["end"]) for one in page["timeline"]] == [(fence, "released") for fence in fences]


def test_a_break_is_in_the_journal_with_who_did_it(site: Site, working: ql.Locker) -> None:
    lease = working.lock("stuck").acquire()
    assert eventually(lambda: events(site, "stuck") == [("acquired", lease.fence)])
    assert site.page().post("api/v1/lock/break", json={"name": "stuck", "fence": lease.fence}).json()["broken"]
    assert eventually(lambda: len(events(site, "stuck")) > 1)
    broken = [entry for entry in working.journal().entries if entry.what == "broken"]
    assert len(broken) == 1
    assert "dashboard@127.0.0.1" in broken[0].who + broken[0].detail
    told = [one for one in site.get("api/v1/events", name="stuck")["events"] if one["what"] == "broken"]
    assert len(told) == 1, "told once, by the journal"
    assert "dashboard@127.0.0.1" in told[0]["who"] + told[0]["detail"]
    assert [one["end"] for one in site.get("api/v1/lock", name="stuck")["timeline"]] == ["broken"]
    lease.release()


def test_without_one_no_break_makes_one(locks: ql.Locker) -> None:
    name = locks.engine.labels[0].removesuffix("-0")
    with (
        ql.connect(f"memory://{name}?nodes=3", journal=1000) as breaker,
        served(locks, allow_break=True, breaker=breaker) as site,
    ):
        lease = locks.lock("a").acquire()
        assert site.page().post("api/v1/lock/break", json={"name": "a"}).json()["broken"]
        lease.release()
        assert not locks.journal().kept, "one entry alone would hide what the dashboard sees itself"
