"""Each finding about what nodes agree on, their clocks, their speed and the way to them, really provoked."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path

import pytest

import quorumlock as ql
from quorumlock.lab.servers import Server, free_port
from tests.live.chaos.clocks import Clock
from tests.support.certificates import make_certificate
from tests.support.proxy import Proxy

from .conftest import Start
from .examining import examined, fleet, only, toml, troubles
from .tools import call

pytestmark = [pytest.mark.live, pytest.mark.real_time]


def apart(says: str) -> float:
    """The first number of seconds in a sentence."""
    found = re.search(r"([-+]?\d+\.\d+) s", says)
    assert found is not None, says
    return float(found[1])


def test_clocks_that_are_apart(start: Start, good: list[Server], clock: Clock) -> None:
    odd = start(before=clock.command)
    clock.offset = 6.0
    severity, node, says = only(troubles(fleet(*good, odd), "clocks"))
    assert (severity, node) == ("warning", odd.label)
    assert apart(says) == pytest.approx(6.0, abs=0.5)
    clock.offset = -20.0
    severity, node, says = only(troubles(fleet(*good, odd), "clocks"))
    assert (severity, node) == ("error", odd.label), "more than max_ttl / 4"
    clock.offset = 0.0
    assert troubles(fleet(*good, odd), "clocks") == []


def test_a_clock_that_steps_while_it_is_looked_at(start: Start, good: list[Server], clock: Clock) -> None:
    restless = start(before=clock.command)
    done = threading.Event()

    def step() -> None:
        while not done.wait(0.1):
            clock.offset = 0.7 - clock.offset

    stepping = threading.Thread(target=step)
    stepping.start()
    try:
        severity, node, says = only(troubles(fleet(*good, restless), "clock steps", seconds=1))
    finally:
        done.set()
        stepping.join()
    assert (severity, node) == ("error", restless.label)
    assert abs(apart(says)) == pytest.approx(0.7, abs=0.2)
    clock.offset = 0.0
    assert troubles(fleet(*good, restless), "clock steps", seconds=0.5) == []


def test_a_node_that_is_too_slow(start: Start, good: list[Server], tmp_path: Path) -> None:
    config = toml(tmp_path, node_timeout=0.3)  # a look waits ten times that: no busy machine takes so long
    with Proxy(start()) as proxy:
        proxy.delay = 0.32
        found = troubles(f"{fleet(*good)},{proxy.url}", "latency", config)
    # The others may be slow, too, where the machine is busy.
    ((severity, says),) = [(severity, says) for severity, node, says in found if node == proxy.label]
    assert severity == "error"
    assert "node_timeout is 300 ms" in says


def test_a_node_with_little_room(start: Start, tmp_path: Path) -> None:
    with Proxy(start()) as proxy:
        proxy.delay = 0.7
        config = toml(tmp_path, node_timeout=1.2)
        severity, _, says = only(troubles(proxy.url, "latency", config, seconds=0))
        assert severity == "warning"
        assert "little room" in says


def test_a_short_ttl_leaves_less_time(start: Start) -> None:
    with Proxy(start()) as proxy:
        proxy.delay = 0.035
        assert "most of its votes" in only(troubles(proxy.url, "latency", "--max-ttl", "0.1"))[2]


def test_how_many_nodes(start: Start, good: list[Server]) -> None:
    severity, _, says = only(troubles(fleet(*good), "number of nodes"))
    assert severity == "warning"
    assert "survive the loss of 0" in says
    (alone,) = (one for one in examined(good[0].url) if one["check"] == "number of nodes")
    assert alone["severity"] == "ok"
    assert alone["says"].startswith("one node")
    assert alone["remedy"]
    assert troubles(fleet(*good, start()), "number of nodes") == []


def test_a_fleet_that_was_never_initialised(start: Start, good: list[Server]) -> None:
    urls = fleet(*good, start())
    severity, node, says = only(troubles(urls, "markers"))
    assert (severity, node) == ("warning", None)
    assert "never initialised" in says
    severity, _, says = only(troubles(urls, "majority"))
    assert severity == "error"
    assert "0 of 3 nodes are ready" in says


def test_one_node_was_emptied(start: Start, good: list[Server]) -> None:
    urls = fleet(*good, start())
    call("init", "--url", urls)
    good[1].command("FLUSHALL")
    severity, node, _ = only(troubles(urls, "markers"))
    assert (severity, node) == ("warning", good[1].label)
    assert troubles(urls, "majority") == [], "two of three are ready"


def test_other_terms(start: Start, good: list[Server]) -> None:
    urls = fleet(*good, start())
    call("init", "--url", urls, "--max-ttl", "30")
    found = troubles(urls, "markers")
    assert [severity for severity, _, _ in found] == ["error"] * 3
    assert "max_ttl 30 s there, 60 s here" in found[0][2]
    assert "number of nodes 3 there, 1 here" in only(troubles(good[0].url, "markers"))[2]
    durable = troubles(urls, "markers", "--max-ttl", "30", "--durable")
    assert "durable off there, on here" in durable[0][2]
    named = troubles(urls, "markers", "--max-ttl", "30", "--fleet", "blue")
    assert "node list" in named[0][2]
    assert troubles(urls, "markers", "--max-ttl", "30") == []


def test_quarantine_is_a_term_too(start: Start, good: list[Server], tmp_path: Path) -> None:
    urls = fleet(*good, start())
    call("init", "--url", urls)
    found = troubles(urls, "markers", toml(tmp_path, quarantine=False))
    assert "quarantine on there, off here" in found[0][2]


def test_markers_that_cannot_be_read_or_are_closed(start: Start, good: list[Server]) -> None:
    odd = start()
    urls = fleet(*good, odd)
    call("init", "--url", urls)
    marker = odd.command("GET", "ql:node").split(b"\r\n")[1]
    odd.command("SET", "ql:node", "something else")
    assert "cannot read" in only(troubles(urls, "markers"))[2]
    closed = b" ".join([b"9007199254740991", *marker.split()[1:8], b"from::0"])
    odd.command("SET", "ql:node", closed)
    severity, node, says = only(troubles(urls, "markers"))
    assert (severity, node) == ("error", odd.label)
    assert "closed" in says


def test_a_node_in_quarantine(start: Start, good: list[Server]) -> None:
    kept = start("--appendonly", "yes")
    urls = fleet(*good, kept)
    call("init", "--url", urls)
    kept.restart()
    severity, node, says = only(troubles(urls, "majority"))
    assert (severity, node) == ("warning", kept.label)
    assert "in quarantine for 60.0 s" in says


def own_address() -> str | None:
    """An address of this machine that is not the loopback's; nothing is sent to find it."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def test_plain_text_beyond_this_machine(start: Start) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no network, and so nothing but itself to talk to")
    server = start("--bind", "0.0.0.0", "--protected-mode", "no")
    server.command("CONFIG", "SET", "requirepass", "pw")
    url = f"redis://:pw@{address}:{server.port}"
    severity, node, says = only(troubles(url, "encryption"))
    assert (severity, node) == ("warning", f"{address}:{server.port}")
    assert "plain text" in says
    assert troubles(f"redis://:pw@127.0.0.1:{server.port}", "encryption") == []


@pytest.fixture
def ends_soon(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate that ends soon, and its key."""
    return make_certificate(tmp_path, days=12)


@pytest.fixture
def tls(start: Start, ends_soon: tuple[Path, Path]) -> str:
    crt, key = ends_soon
    port = free_port()
    arguments = ["--tls-port", str(port), "--tls-cert-file", str(crt), "--tls-key-file", str(key)]
    start(*arguments, "--tls-ca-cert-file", str(crt), "--tls-auth-clients", "no", kind="redis")
    return f"rediss://localhost:{port}"


def test_certificates(tls: str, ends_soon: tuple[Path, Path]) -> None:
    severity, _, says = only(troubles(f"{tls}?ssl_ca_certs={ends_soon[0]}", "encryption"))
    assert severity == "warning"
    assert "valid for 12" in says or "valid for 11.9" in says
    severity, _, says = only(troubles(f"{tls}?ssl_cert_reqs=none&ssl_check_hostname=false", "encryption"))
    assert severity == "warning"
    assert "not checked" in says


def test_a_certificate_that_nobody_vouches_for_is_unreachable(tls: str) -> None:
    assert "certificate" in only(troubles(tls, "reachable"))[2].lower()


def test_doubles_need_no_doctor() -> None:
    assert [one["severity"] for one in examined("memory://")] == ["ok"]
    with ql.connect("memory://") as locks:
        assert locks.nodes()[0].state == "ready"
