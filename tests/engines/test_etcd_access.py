"""The etcd engine and its hosts: who cannot be reached, who is let in, and TLS."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorumlock import ConfigurationError, Jitter, NoQuorum
from quorumlock.engines.etcd.ear import Ear
from quorumlock.engines.etcd.queue import Watched
from quorumlock.lab.servers import free_port
from tests.support.servers import etcd as etcd_servers
from tests.support.servers.etcd import EtcdServer, b64

from .etcd_fixtures import Connect, acquire_when_told, connect, released_when, server

__all__ = ["connect", "server"]  # fixtures

pytestmark = [pytest.mark.live, pytest.mark.real_time(0.3)]


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
            started_at = time.monotonic()
            with pytest.raises(NoQuorum, match="which no etcd of version"):
                connect(f"etcd://127.0.0.1:{other.server_port}").lock("a").acquire(timeout=0)
            assert time.monotonic() - started_at < 1, "that will not change"
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
    lease = others.lock("a", ttl=60).acquire(timeout=1)
    with released_when(lambda: others.inspect("a").waiters, lease), acquire_when_told(locks.lock("a")):
        others.break_("a")
    assert locks.cell("c").set(1, 0) > 0
    assert locks.nodes()[0].state == "ready"


def test_a_token_that_is_over_is_made_anew(closed: EtcdServer, connect: Connect) -> None:
    locks = connect(f"etcd://zoe:of-zoe@{closed.label}")
    locks.lock("a").acquire(timeout=1).release()
    locks.engine.talk.token = "forgotten.1"
    locks.lock("a").acquire(timeout=1).release()


def test_a_stream_whose_token_is_over_is_opened_again(closed: EtcdServer, connect: Connect) -> None:
    url = f"etcd://zoe:of-zoe@{closed.label}"
    locks, others = connect(url, retry=Jitter(3600)), connect(url)
    lease = others.lock("a", ttl=60).acquire(timeout=1)
    watch = Ear.watch
    late: list[Watched] = []

    def too_late(self: Ear, wanted: Watched) -> None:
        if not late:
            late.append(wanted)
            locks.engine.talk.token = "forgotten.1"
        watch(self, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ear, "watch", too_late)
        with released_when(lambda: late, lease):
            acquire_when_told(locks.lock("a", ttl=20)).release()


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
        with pytest.raises(NoQuorum, match=r"bad certificate|required"):  # we trust it, but do not say who we are
            connect(f"{server.url}?ca={crt}").lock("a").acquire(timeout=0)
        with pytest.raises(ConfigurationError, match="cannot be used"):
            connect(f"{server.url}?ca={crt}&cert={crt}&key={crt}").lock("a").acquire(timeout=0)
    finally:
        server.stop()
