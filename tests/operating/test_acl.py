"""`doctor --acl`: a user with just these rights can do everything that the library does, and nothing else."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator

import pytest
import redis

import quorumlock as ql
from quorumlock.doctoring import needs
from quorumlock.doctoring.needs import needed, probes, setuser
from quorumlock.doctoring.rights import BEARABLE
from quorumlock.lab.servers import Server, Servers

from .conftest import Start
from .examining import examined, only, troubles
from .tools import call

pytestmark = [pytest.mark.live, pytest.mark.real_time]


def words(line: str, password: str = "pw") -> list[str]:
    return [word.replace("PASSWORD", password) for word in shlex.split(line)]


@pytest.fixture(scope="module")
def fenced(kind: str) -> Iterator[Servers]:
    with Servers(3, kind) as servers:
        yield servers


@pytest.fixture
def urls(fenced: Servers) -> list[str]:
    """As the user of the line that is printed."""
    line = call("doctor", "--acl", "--user", "alice", "--prefix", "shop:", "--url", ",".join(fenced.urls)).out
    assert len(line.splitlines()) == 1, line
    for server in fenced.servers:
        server.command("FLUSHALL")
        server.command("SCRIPT", "FLUSH")
        server.command("ACL", "LOG", "RESET")
        assert server.command(*words(line)) == b"+OK\r\n"
    return [server.url.replace("//", "//alice:pw@") for server in fenced.servers]


def denials(servers: Servers) -> list[bytes]:
    return [reply for server in servers.servers if (reply := server.command("ACL", "LOG")) != b"*0\r\n"]


def test_everything_runs_as_that_user(urls: list[str], fenced: Servers) -> None:
    with ql.connect(urls, prefix="shop:", max_ttl=20) as locks:
        assert {node.state for node in locks.nodes()} == {"quarantined"}
        locks.init_fleet()
        with locks.lock("job", ttl=5, note="a note", lock_delay=0.1, at_least=0.01) as lease:
            lease.extend()
            assert locks.list("j*") == ["job"]
            assert locks.inspect("job").state == "held"
            assert locks.lock("job").locked()
        waits_for_its_turn(locks)
        the_family(locks)
        lease = locks.lock("job").acquire()
        locks.break_("job")
        with pytest.raises(ql.LeaseLost):
            lease.extend()
        assert {node.state for node in locks.nodes()} == {"ready"}
    assert denials(fenced) == []
    found = [
        one for one in examined(",".join(urls), "--prefix", "shop:", "--max-ttl", "20") if one["check"] == "rights"
    ]
    assert [one["severity"] for one in found] == ["ok"]


def waits_for_its_turn(locks: ql.Locker) -> None:
    """Somebody waits in the queue, and is told."""
    lease = locks.lock("turn", ttl=15, fair=True).acquire()
    got = threading.Event()

    def wait() -> None:
        with locks.lock("turn", ttl=15, timeout=30, fair=True):
            got.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not locks.inspect("turn").waiters:
        pass
    lease.release()
    waiting.join(timeout=30)
    assert got.is_set()


def the_family(locks: ql.Locker) -> None:
    with locks.read_write("doc").read(), locks.read_write("doc").read():
        assert locks.inspect("doc").state == "shared"
    locks.read_write("doc").downgrade(locks.read_write("doc").write().acquire()).release()
    with locks.semaphore("pool", permits=2) as one, locks.semaphore("pool", permits=2) as two:
        assert {one.slot, two.slot} == {0, 1}
    with locks.multi(["a", "b"]) as lease:
        assert set(lease.fences) == {"a", "b"}
    with locks.lock("again", reentrant=True), locks.lock("again", reentrant=True):
        pass
    with locks.election("boss").lead():
        leader = locks.election("boss").leader()
        assert leader is not None
    cell = locks.cell("number")
    _, version = cell.get()
    cell.set(b"1", version)
    assert cell.update(lambda value: value + b"1") == b"11"


def test_what_belongs_to_others_is_out_of_reach(urls: list[str], fenced: Servers) -> None:
    with ql.connect(urls, prefix="other:", max_ttl=20) as locks, pytest.raises(ql.NoQuorum, match="NOPERM"):
        locks.init_fleet()
    assert denials(fenced)


def test_every_command_that_is_needed_can_be_asked_for() -> None:
    assert set(needed()) <= set(probes("", "")), "write a probe for it in doctoring/needs.py"
    assert {"eval", "set", "zadd", "publish", "subscribe", "client|kill", "info"} <= set(needed())


def test_a_right_that_is_missing_is_named(start: Start) -> None:
    server = start()
    line = setuser("bob", "", "ql:wake:")
    url = server.url.replace("//", "//bob:pw@")
    for missing in needed():
        without = line.replace(f" +{missing} ", " ").removesuffix(f" +{missing}")
        assert without != line
        assert server.command(*words(without)) == b"+OK\r\n"
        if missing in ("eval", "info"):
            continue  # the next test: nothing else can be said without them
        severity, _, says = only(troubles(url, "rights", seconds=0))
        assert f"do {missing}:" in says
        assert severity == ("warning" if missing in BEARABLE else "error"), missing
    assert not {"evalsha", "get", "set", "time", "zadd"} & BEARABLE.keys()


@pytest.mark.parametrize("missing", ["eval", "info"])
def test_rights_without_which_nothing_goes(start: Start, missing: str) -> None:
    servers = [start() for _ in range(3)]
    line = setuser("bob", "", "ql:wake:").replace(f" +{missing} ", " ")
    for server in servers:
        assert server.command(*words(line)) == b"+OK\r\n"
    urls = ",".join(server.url.replace("//", "//bob:pw@") for server in servers)
    found = troubles(urls, "rights", seconds=0)
    assert [(severity, says.count(missing) > 0) for severity, _, says in found] == [("error", True)] * 3


def commands(server: Server) -> set[str]:
    with redis.Redis(port=server.port) as client:
        return {name.decode() for name in client.execute_command("COMMAND LIST") if b"|" not in name}


def test_a_command_that_a_server_lacks_is_left_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ACL SETUSER` refuses the whole line for one word that it does not know."""
    old, new = start(kind="redis"), [start(), start()]
    rare = min(commands(new[0]) - commands(old))  # that Valkey has, and Redis has not
    monkeypatch.setattr(needs, "OUTSIDE", (*needs.OUTSIDE, rare))
    assert b"Unknown command" in old.command(*words(setuser("x", "", "ql:wake:")))
    said = call("doctor", "--acl", "--url", ",".join(server.url for server in [old, *new]))
    first, remark, line, second, other = said.out.splitlines()
    assert first == f"# for {old.label}"
    assert remark == f"# {old.label} does not know {rare}: left out"
    assert old.command(*words(line)) == b"+OK\r\n"
    assert f"+{rare}" not in line
    assert second == f"# for {new[0].label}, {new[1].label}"
    assert f"+{rare}" in other
    assert new[0].command(*words(other)) == b"+OK\r\n"


def test_a_command_that_was_taken_away_is_missing(start: Start) -> None:
    server = start("--rename-command", "SCAN", "", "--rename-command", "ZADD", "")
    found = troubles(server.url, "rights")
    assert [(severity, says[:35]) for severity, _, says in found] == [
        ("error", "does not let this user do zadd: loc"),
        ("warning", "does not let this user do scan: `qu"),
    ]


def test_names_that_need_quotes(start: Start) -> None:
    server = start()
    line = call("doctor", "--acl", "--prefix", 'my "shop" ', "--url", f"{server.url}/3").out.strip()
    assert '"~my?\\"shop\\"?*"' in line
    assert line.endswith("+select"), "another database than 0"
    assert server.command(*words(line)) == b"+OK\r\n"
    url = f"{server.url.replace('//', '//quorumlock:pw@')}/3"
    with ql.connect(url, prefix='my "shop" ') as locks, locks.lock("job"):
        assert locks.list() == ["job"]


@pytest.mark.parametrize("arguments", [("--url", "memory://"), ("--url", "redis://x", "--user", "a b")])
def test_lines_that_make_no_sense(arguments: tuple[str, ...]) -> None:
    assert call("doctor", "--acl", *arguments).code == 64


def test_a_server_that_is_down_gets_the_whole_line(servers: Servers, start: Callable[..., Server]) -> None:
    gone = start()
    gone.kill()
    said = call("doctor", "--acl", "--json", "--url", gone.url)
    assert said.json[0]["line"] == setuser("quorumlock", "", "ql:wake:")
    assert "does not tell" in said.json[0]["remarks"][0]
