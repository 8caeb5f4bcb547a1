"""The etcd engine when things go wrong: servers that die or are silent, lost answers, and who is let in."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quorumlock
from quorumlock import ConfigurationError, Jitter, LeaseLost, LossReason, NoQuorum
from quorumlock.lab.servers import free_port
from tests import etcd_servers
from tests.etcd_servers import EtcdServer, b64
from tests.live.tools import eventually
from tests.proxy import Proxy

from .etcd_fixtures import Connect, connect, connect_async, holds, leases, proxy, server, shared, through

__all__ = ["connect", "proxy", "server", "shared"]  # fixtures

pytestmark = pytest.mark.live


# Servers that die, or are silent.


def test_a_lease_survives_a_server_that_restarts(server: EtcdServer, connect: Connect) -> None:
    locks = connect(node_timeout=0.2)
    lease = locks.lock("a", ttl=3).acquire(timeout=1)
    server.restart()
    time.sleep(1.2)
    lease.check()
    lease.extend()
    assert connect().lock("a").try_acquire() is None
    lease.release()
    new = connect().lock("a").acquire(timeout=1)
    assert new.fence > lease.fence
    new.release()


def test_a_waiter_outlives_a_server_that_restarts(server: EtcdServer, connect: Connect) -> None:
    """Its ears are lost, and made anew; it is told of a release that happened later."""
    holder, waiter = connect(node_timeout=0.2), connect(retry=Jitter(3600), patience=30.0, node_timeout=0.2)
    lease = holder.lock("a", ttl=20).acquire(timeout=1)
    got: list[quorumlock.Lease] = []
    thread = threading.Thread(target=lambda: got.append(waiter.lock("a", ttl=20).acquire(timeout=20)))
    thread.start()
    assert eventually(lambda: holder.inspect("a").waiters)
    server.restart()
    assert eventually(lambda: 0 in waiter._runner.room.ears)
    time.sleep(0.3)
    assert not got
    lease.release()
    thread.join(5)
    assert got, "nobody told it"
    got[0].release()


def test_a_dead_server_is_told_at_once_and_waited_for(server: EtcdServer, connect: Connect) -> None:
    locks = connect()
    locks.lock("a").acquire(timeout=1).release()
    server.kill()
    started_at = time.monotonic()
    with pytest.raises(NoQuorum, match=f"etcd:{server.label} cannot be reached .*refused") as broken:
        locks.lock("a").try_acquire()
    assert time.monotonic() - started_at < 2
    assert not broken.value.may_linger
    assert locks.nodes()[0].state == "down"
    got: list[quorumlock.Lease] = []
    thread = threading.Thread(target=lambda: got.append(locks.lock("a").acquire(timeout=20)))
    thread.start()
    server.start()
    thread.join(10)
    assert got
    got[0].release()


def test_a_silent_server_is_unknown_and_not_busy(server: EtcdServer, connect: Connect) -> None:
    locks = connect()
    lease = locks.lock("a", ttl=20).acquire(timeout=1)
    server.pause()
    try:
        started_at = time.monotonic()
        with pytest.raises(NoQuorum, match="did not answer in time") as silent:
            locks.lock("b").try_acquire()
        assert time.monotonic() - started_at < 8
        assert silent.value.may_linger
    finally:
        server.resume()
    lease.check()
    lease.extend()
    lease.release()
    # What was asked in vain was undone, or hangs on a lease that ends.
    assert eventually(lambda: holds(server) == [], within=12)


def test_a_lease_that_cannot_be_renewed_ends_by_its_own_clock(server: EtcdServer, connect: Connect) -> None:
    lease = connect().lock("a", ttl=1.5).acquire(timeout=1)
    lost = lease.lost
    server.pause()
    try:
        started_at = time.monotonic()
        assert lost.wait(5)
        assert time.monotonic() - started_at < 2.5
        with pytest.raises(LeaseLost) as why:
            lease.check()
        assert why.value.reason in (LossReason.EXPIRED, LossReason.UNREACHABLE)
    finally:
        server.resume()


HOLDER = """
import sys, time, quorumlock
locks = quorumlock.connect(sys.argv[1], node_timeout=0.2)
lease = locks.lock("a", ttl=1).acquire(timeout=5)
print("held", flush=True)
sys.stdin.readline()
try:
    lease.check()
except quorumlock.LeaseLost as lost:
    print("lost", lost.reason.name, flush=True)
else:
    print("valid", flush=True)
"""


def test_a_client_that_was_stopped_knows_that_it_lost(server: EtcdServer, connect: Connect) -> None:
    """SIGSTOP past its ttl: somebody else has the lock; on waking it says so before it asks anybody."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, server.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        new = connect().lock("a", ttl=20).acquire(timeout=10)
        process.stdin.write("\n")
        process.stdin.flush()
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline().startswith("lost")
        process.kill()
    new.extend()
    new.release()


def test_what_a_killed_client_held_is_free_when_its_lease_ends(server: EtcdServer, connect: Connect) -> None:
    """And who waits is told then: the end of a lease is announced, too."""
    locks = connect(retry=Jitter(3600))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, server.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.kill()
    started_at = time.monotonic()
    locks.lock("a", ttl=20).acquire(timeout=20).release()
    assert time.monotonic() - started_at < 4


# Connections that break, and answers that are lost.


def test_a_cut_connection_is_made_anew(connect: Connect, proxy: Proxy) -> None:
    locks = connect(through(proxy))
    for _ in range(3):
        lease = locks.lock("a").acquire(timeout=1)
        proxy.cut()
        lease.extend()
        proxy.cut()
        lease.release()


def test_a_grant_whose_answer_is_lost_is_known_by_its_id(
    server: EtcdServer, connect: Connect, proxy: Proxy
) -> None:
    locks = connect(through(proxy), node_timeout=0.2)
    locks.lock("warm").locked()
    before = leases(server)
    proxy.lose_next_answer = True
    lease = locks.lock("a", ttl=5).acquire(timeout=3)
    assert len(leases(server) - before) == 1
    lease.release()


def test_a_lock_whose_answer_is_lost_is_known_by_its_token(
    server: EtcdServer, connect: Connect, proxy: Proxy
) -> None:
    """And its lease is revoked in the end: a request that was asked twice may come once more."""
    locks = connect(through(proxy), node_timeout=0.2)
    locks.lock("warm").locked()
    losing = threading.Thread(target=_lose_the_transaction, args=(proxy,))
    losing.start()
    lease = locks.lock("a", ttl=5).acquire(timeout=3)
    losing.join()
    lease.check()
    assert len(holds(server)) == 1
    before = leases(server)
    lease.release()
    assert holds(server) == []
    assert len(leases(server)) == len(before) - 1


def _lose_the_transaction(proxy: Proxy) -> None:
    """As soon as the answer to the grant has passed."""
    proxy.last_answer = b""
    while b'"TTL"' not in proxy.last_answer:
        pass
    proxy.lose_next_answer = True


def test_a_late_request_sets_no_lock_that_nobody_has(server: EtcdServer, connect: Connect, proxy: Proxy) -> None:
    """It is held up on its way, given up, and undone over another connection; then it arrives.

    client: puts the lock under lease 7 ── … held up …                  ── arrives: lease 7 is gone
    client:          gives up · releases · revokes lease 7
    """
    locks = connect(through(proxy))
    leases = locks.engine.leases
    obtain = leases.obtain

    def obtained(*arguments: Any) -> Any:
        told = yield from obtain(*arguments)
        proxy.hold_requests()  # of connections that stand: those that are made later are free
        return told

    locks.lock("warm").locked()
    leases.obtain = obtained
    with pytest.raises(NoQuorum, match="did not answer in time"):
        locks.lock("a", ttl=30).acquire(timeout=0)
    assert proxy.holds
    proxy.let_go()
    time.sleep(0.3)
    assert holds(server) == []
    connect().lock("a").acquire(timeout=0).release()


def test_a_cell_knows_what_it_has_set(server: EtcdServer, connect: Connect, proxy: Proxy) -> None:
    """The answer is lost, and asked for again: no conflict with oneself."""
    locks = connect(through(proxy), node_timeout=0.2)
    cell = locks.cell("c")
    version = cell.set("one", 0)
    stop = threading.Event()

    def cut() -> None:
        while not stop.is_set():
            proxy.lose_next_answer = True
            time.sleep(0.02)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        for value in range(20):
            version = cell.set(value, version)
    finally:
        stop.set()
        thread.join()
        proxy.lose_next_answer = False
    assert connect().cell("c").get() == (19, version)


def test_a_stream_that_is_cut_is_opened_again(server: EtcdServer, connect: Connect, proxy: Proxy) -> None:
    async def main() -> None:
        async with connect_async(through(proxy), retry=Jitter(3600)) as locks:
            other = connect()
            lease = other.lock("a", ttl=20).acquire(timeout=1)
            waiter = asyncio.create_task(locks.lock("a", ttl=20).acquire(timeout=20))
            for _ in range(3):
                await asyncio.sleep(0.2)
                proxy.cut()
            await asyncio.sleep(0.3)
            assert not waiter.done()
            lease.release()
            await (await asyncio.wait_for(waiter, 5)).release()

    asyncio.run(main())


def test_what_was_compacted_away_is_asked_for(server: EtcdServer, connect: Connect) -> None:
    """A stream from a revision which is gone is cancelled: whoever waits asks, and watches from now on."""
    from quorumlock.engines.etcd.ear import Ear
    from quorumlock.engines.etcd.queue import Watched

    locks = connect(retry=Jitter(3600))
    lease = connect().lock("a", ttl=20).acquire(timeout=1)
    watch = Ear.watch
    late: list[Watched] = []

    def too_old(self: Ear, wanted: Watched) -> None:
        if not late:
            late.append(wanted)
            told = server.ask("/v3/kv/put", {"key": b64("x")})
            server.ask("/v3/kv/compaction", {"revision": told["header"]["revision"]})
            wanted = wanted._replace(revision=1)
        watch(self, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ear, "watch", too_old)
        timer = threading.Timer(0.5, lease.release)
        timer.start()
        locks.lock("a", ttl=20).acquire(timeout=10).release()
    assert late
    timer.join()


# Who cannot be reached, and who is let in.


def test_hosts_that_cannot_be_reached_are_named(connect: Connect) -> None:
    ports = [free_port(), free_port()]
    hosts = [f"127.0.0.1:{port}" for port in ports]
    locks = connect("etcd://" + ",".join(hosts))
    started_at = time.monotonic()
    with pytest.raises(NoQuorum) as broken:
        locks.lock("a").acquire(timeout=0)
    assert time.monotonic() - started_at < 3
    for host in hosts:
        assert f"{host}: " in str(broken.value)


def test_a_host_that_says_nothing_is_named_in_time(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        locks = connect(f"etcd://127.0.0.1:{listener.getsockname()[1]}")
        started_at = time.monotonic()
        with pytest.raises(NoQuorum, match="did not answer in time"):
            locks.lock("a").acquire(timeout=0)
        assert time.monotonic() - started_at < 6


def test_what_is_no_etcd_is_told(connect: Connect) -> None:
    import http.server

    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(NoQuorum, match="which no etcd of version"):
                connect(f"etcd://127.0.0.1:{other.server_port}").lock("a").acquire(timeout=0)
        finally:
            other.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def closed() -> Iterator[EtcdServer]:
    """A server that wants to know who asks: root may do all, zoe what she needs, tom nothing of ours."""
    etcd_servers.needed()
    with EtcdServer("--auth-token-ttl", "1") as server:
        for user in ("root", "zoe", "tom"):
            server.ask("/v3/auth/user/add", {"name": user, "password": f"of-{user}"})
            server.ask("/v3/auth/role/add", {"name": user})
            server.ask("/v3/auth/user/grant", {"user": user, "role": user})
        for user, start in (("zoe", "quorumlock/"), ("tom", "toms/")):
            may = {"permType": "READWRITE", "key": b64(start), "range_end": b64(start[:-1] + "0")}
            server.ask("/v3/auth/role/grant", {"name": user, "perm": may})
        server.ask("/v3/auth/enable", {})
        yield server


def test_least_privileges_are_enough_for_everything(closed: EtcdServer, connect: Connect) -> None:
    url = f"etcd://zoe:of-zoe@{closed.label}"
    locks, others = connect(url, retry=Jitter(3600)), connect(url)
    for lock in (locks.lock("a"), locks.semaphore("s", 2), locks.multi(["x", "y"]), locks.read_write("r").read()):
        with lock as lease:
            lease.extend()
            assert locks.list() != []
            assert locks.inspect(next(iter(lease.fences))).state in ("held", "shared")
    lease = others.lock("a").acquire(timeout=1)
    timer = threading.Timer(0.3, lease.release)
    timer.start()
    with locks.lock("a"):  # which waits, and is told
        timer.join()
        others.break_("a")
    assert locks.cell("c").set(1, 0) > 0
    assert locks.nodes()[0].state == "ready"


def test_a_token_that_is_over_is_made_anew(closed: EtcdServer, connect: Connect) -> None:
    locks = connect(f"etcd://zoe:of-zoe@{closed.label}")
    locks.lock("a").acquire(timeout=1).release()
    locks.engine.talk.token = "forgotten.1"
    locks.lock("a").acquire(timeout=1).release()


@pytest.mark.parametrize(
    ("who", "why"),
    [
        ("zoe:wrong@", "does not let us in .*'zoe'.*authentication failed"),
        ("tom:of-tom@", "permission denied: this user needs a role with readwrite on the prefix quorumlock/"),
        ("", "name a user and a password in the URL"),
    ],
)
def test_who_is_not_let_in_is_told_why(closed: EtcdServer, connect: Connect, who: str, why: str) -> None:
    locks = connect(f"etcd://{who}{closed.label}")
    with pytest.raises(NoQuorum, match=why) as denied:
        locks.lock("a").acquire(timeout=0)
    for secret in ("wrong", "of-tom"):
        assert secret not in str(denied.value)
    assert not denied.value.may_linger


def test_a_user_where_everybody_is_let_in(server: EtcdServer, connect: Connect) -> None:
    with connect(f"etcd://zoe:of-zoe@{server.label}").lock("a", timeout=1):
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate of loopback, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        if os.environ.get("CI"):
            pytest.fail("CI must not skip: no openssl here to make a certificate with")
        pytest.skip("no openssl here to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    crt, key = folder / "crt.pem", folder / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(crt)],
        check=True, capture_output=True,
    )  # fmt: skip
    return crt, key


def test_tls_both_ways(certificate: tuple[Path, Path], connect: Connect) -> None:
    etcd_servers.needed()
    server = EtcdServer(scheme="https")
    try:
        crt, key = (str(shutil.copy(path, server.folder)) for path in certificate)
        for path in (crt, key):
            Path(path).chmod(0o644)
        server.arguments += ["--cert-file", crt, "--key-file", key, "--trusted-ca-file", crt, "--client-cert-auth"]
        server.start(wait=False)
        trusted = f"{server.url}?ca={crt}&cert={crt}&key={key}"
        with connect(trusted, patience=20.0).lock("a", timeout=20) as lease:
            lease.extend()
        with pytest.raises(NoQuorum, match="certificate"):
            connect(server.url).lock("a").acquire(timeout=0)
        with pytest.raises(NoQuorum, match="(?i)certificate required"):  # we trust it, but do not say who we are
            connect(f"{server.url}?ca={crt}").lock("a").acquire(timeout=0)
        with pytest.raises(ConfigurationError, match="cannot be used"):
            connect(f"{server.url}?ca={crt}&cert={crt}&key={crt}").lock("a").acquire(timeout=0)
    finally:
        server.stop()
