"""What the API tells of real locks, and what it never tells."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import quorumlock as ql
from quorumlock.lab.servers import Servers
from quorumlock.web.api import LOOKS_MOST
from tests.support.waiting import eventually

from .conftest import MakeSite
from .site import Site, messages, secrets_in

MakeServers = Callable[..., Servers]
pytestmark = pytest.mark.real_time
ALL = ("session", "overview", "locks", "nodes", "events", "lock?name=orders:1", "openapi.json")


def test_a_lock_is_told_with_its_holder(site: Site, locks: ql.Locker) -> None:
    with locks.lock("orders:1", note="import") as lease, locks.read_write("doc").read():
        assert eventually(lambda: site.get("api/v1/locks")["total"] == 2)
        found = site.get("api/v1/locks", search="ORDERS")
        assert [row["name"] for row in found["locks"]] == ["orders:1"]
        assert found["matching"] == 1
        row = found["locks"][0]
        assert row["fence"] == lease.fence
        assert row["note"] == "import"
        assert row["state"] == "held"
        assert [one["name"] for one in site.get("api/v1/locks", state="shared")["locks"]] == ["doc"]
        assert [one["name"] for one in site.get("api/v1/locks", search="import")["locks"]] == ["orders:1"]
        lock = site.get("api/v1/lock", name="orders:1")["lock"]
        assert lock["holders"][0]["fence"] == lease.fence
        assert [node["says"] for node in lock["nodes"]] == ["held"] * 3
        assert [node["holder"] for node in lock["nodes"]] == ["A"] * 3
    assert eventually(lambda: site.get("api/v1/locks")["total"] == 0)


def test_locks_are_sorted_and_cut(site: Site, locks: ql.Locker) -> None:
    leases = [locks.lock(name).acquire() for name in ("b", "c", "a")]

    def names(**wanted: object) -> list[str]:
        return [row["name"] for row in site.get("api/v1/locks", **wanted)["locks"]]

    assert eventually(lambda: names() == ["a", "b", "c"])
    assert names(order="desc") == ["c", "b", "a"]
    assert names(sort="since") == names(sort="fence") == ["b", "c", "a"]
    assert names(limit=1, offset=1) == ["b"]
    for lease in leases:
        lease.release()


def test_who_waits_is_told(site: Site, locks: ql.Locker) -> None:
    with ql.connect(f"memory://{locks.engine.labels[0].removesuffix('-0')}?nodes=3") as other:

        def wait() -> None:
            with other.lock("orders:1", fair=True):
                pass

        with locks.lock("orders:1"):
            waiter = threading.Thread(target=wait)
            waiter.start()
            assert eventually(lambda: len(site.get("api/v1/lock", name="orders:1")["lock"]["waiters"]) == 1)
            assert eventually(lambda: site.get("api/v1/overview")["waiting"] == 1)
        waiter.join()


def test_no_token_is_told_not_even_its_start(site: Site, locks: ql.Locker) -> None:
    with locks.lock("orders:1") as lease:
        start = locks.inspect("orders:1").holders[0].token.rstrip("…")
        assert lease.token.startswith(start)
        assert eventually(lambda: site.get("api/v1/locks")["total"] == 1)
        page = site.page()
        told = [page.get(f"api/v1/{path}").text for path in ALL] + [page.get("metrics").text]
        with page.stream("GET", "api/v1/stream") as answer:
            told.append(json.dumps(next(messages(answer))))
        told.append(page.post("api/v1/lock/break", json={"name": "orders:1", "fence": 1}).text)
        for text in told:
            assert secrets_in(text.replace(page.headers["x-csrf-token"], "")) == []
            assert f'"{start}' not in text


def test_a_page_is_told_what_changes(site: Site, locks: ql.Locker) -> None:
    with site.visitor().stream("GET", "api/v1/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        told = messages(answer)
        first = next(told)
        assert first["full"] is True
        assert first["locks"] == []
        with locks.lock("a") as lease:
            came = next(one for one in told if one["locks"])
            assert came["full"] is False
            assert [row["name"] for row in came["locks"]] == ["a"]  # type: ignore[attr-defined]
            assert next(one for one in told)["locks"] == [], "told once, though it is held on"
        gone = next(one for one in told if one["gone"])
        assert gone["gone"] == ["a"]
        assert gone["events"][0]["fence"] == lease.fence  # type: ignore[index]


def test_what_the_dashboard_saw_itself_is_history(site: Site, locks: ql.Locker) -> None:
    def events() -> list[tuple[str, int]]:
        return [(one["what"], one["fence"]) for one in site.get("api/v1/events", name="a")["events"]]

    site.get("api/v1/events")
    with locks.lock("a") as first:
        assert eventually(lambda: events() == [("acquired", first.fence)])
    assert eventually(lambda: events()[1:] == [("ended", first.fence)])
    page = site.get("api/v1/lock", name="a")
    assert page["journal"] is False
    assert [(one["fence"], one["end"]) for one in page["timeline"]] == [(first.fence, "ended")]
    newest = page["events"][-1]["id"]
    assert site.get("api/v1/events", after=newest)["events"] == []
    assert [one["what"] for one in site.get("api/v1/events", what="ended")["events"]] == ["ended"]


def test_a_break_is_told_with_who(site: Site, locks: ql.Locker, caplog: pytest.LogCaptureFixture) -> None:
    lease = locks.lock("a").acquire()
    assert eventually(lambda: site.get("api/v1/locks")["total"] == 1)
    with caplog.at_level(logging.WARNING):
        assert site.page().post("api/v1/lock/break", json={"name": "a", "fence": lease.fence}).json()["broken"]
    assert "was broken by dashboard@127.0.0.1" in caplog.text
    assert "forced open by" in caplog.text
    assert eventually(lambda: site.get("api/v1/locks")["total"] == 0)
    events = site.get("api/v1/events", name="a")["events"]
    assert [one["what"] for one in events if one["what"] != "acquired"] == ["broken"], "and not as ended, too"
    assert events[-1]["who"] == "dashboard@127.0.0.1"
    assert [one["what"] for one in site.get("api/v1/overview")["lost"]] == ["broken"]
    lease.release()


def test_nodes_in_quarantine_are_told(site: Site, locks: ql.Locker) -> None:
    site.get("api/v1/locks")
    for number, server in enumerate(locks.engine.servers[:2]):
        server.flush()
        server.restart(f"{number}" * 40)  # quarantine: two of three vote for nobody
    assert eventually(lambda: site.get("api/v1/overview")["nodes"].get("quarantined") == 2)
    states = {node["node"]: node["quarantine"] for node in site.get("api/v1/nodes")["nodes"]}
    assert sum(seconds > 0 for seconds in states.values()) == 2


@pytest.mark.live
def test_without_a_majority_it_is_said_what_is_not_known(make_site: MakeSite, make_servers: MakeServers) -> None:
    servers = make_servers(3)
    with ql.connect(servers.urls) as locks:
        locks.init_fleet()
        site = make_site(locks=locks)
        lease = locks.lock("a", ttl=60, keep=False).acquire()
        assert eventually(lambda: site.get("api/v1/locks")["total"] == 1)
        for server in servers.servers[:2]:
            server.kill()
        assert eventually(lambda: "no majority" in site.get("api/v1/overview")["problem"])
        assert eventually(lambda: site.get("api/v1/overview")["nodes"] == {"ready": 1, "down": 2})
        assert site.get("api/v1/locks")["total"] == 1, "what was known last is still shown"
        answer = site.visitor().get("api/v1/lock", params={"name": "a"})
        assert answer.status_code == 503
        assert "no majority" in answer.json()["error"]
        assert "quorumlock_fleet_sample_failed 1\n" in site.visitor().get("metrics").text
        for server in servers.servers[:2]:
            server.start()
        assert eventually(lambda: not site.get("api/v1/overview")["problem"])
        lease.release()


def test_metrics_are_gauges_without_names(make_site: MakeSite, locks: ql.Locker) -> None:
    with locks.lock("orders:secret-name"):
        site = make_site()
        assert eventually(lambda: "quorumlock_fleet_locks_held 1\n" in site.visitor().get("metrics").text)
        text = site.visitor().get("metrics").text
    assert "secret-name" not in text
    assert text.count("quorumlock_fleet_node_ready{node=") == 3
    for line in text.splitlines():
        assert line.startswith(("# HELP quorumlock_", "# TYPE quorumlock_", "quorumlock_"))
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) >= 7


def test_only_a_few_locks_are_looked_at_at_one_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    source = site.dashboard.sampler.source
    inspect, at_work, most = source.inspect, threading.Semaphore(LOOKS_MOST), []
    requests, all_asked = site.server.server_state.tasks, threading.Event()

    def inspected(name: str) -> ql.Inspection:
        most.append(at_work.acquire(blocking=False))
        # The first ones stay until nobody else comes, though all have asked.
        if not all_asked.is_set() and eventually(lambda: len(requests) == 3 * LOOKS_MOST):
            eventually(lambda: len(most) > LOOKS_MOST, within=0.1)
            all_asked.set()
        at_work.release()
        return inspect(name)

    monkeypatch.setattr(source, "inspect", inspected)
    visitor = site.visitor()
    with ThreadPoolExecutor(3 * LOOKS_MOST) as pool:
        list(pool.map(lambda _: visitor.get("api/v1/lock", params={"name": "a"}), range(3 * LOOKS_MOST)))
    assert all_asked.is_set()
    assert most == [True] * 3 * LOOKS_MOST


def test_nothing_is_sampled_while_nobody_looks(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorumlock.web.sampler.ATTENTION", 0.3)
    site = make_site(every=0.1)
    board = site.dashboard.sampler.board
    with site.visitor().stream("GET", "api/v1/stream") as answer:
        told = messages(answer)
        seen = [next(told)["version"] for _ in range(4)]
        assert seen == sorted(set(seen))  # type: ignore[type-var]
    assert eventually(lambda: site.dashboard.sampler.watchers == 0)
    quiet = 0
    last = board.version
    for _ in range(200):  # a second without a sample, at last
        threading.Event().wait(0.05)
        quiet = quiet + 1 if board.version == last else 0
        last = board.version
        if quiet == 20:
            break
    assert quiet == 20, "it goes on sampling for nobody"
    assert eventually(lambda: site.get("api/v1/locks") and board.version > last), "whoever comes is awaited"
