"""The faults of a chaos run do what they say: a fault without effect would be no evidence."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.tools import get
from tests.support.waiting import eventually

from . import clocks
from .conditions import CLAMP, SMALL, Conditions
from .crew import ROOT
from .fleet import Node, fleet
from .marks import needs_clocks, needs_network

pytestmark = pytest.mark.real_time

HOUR = 3600.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    library = None if clocks.missing() else clocks.build(tmp_path_factory.mktemp("fleet"))
    with fleet(library) as made:
        yield made


@pytest.fixture(params=[0, 1], ids=["first kind", "second kind"])
def node(nodes: list[Node], request: pytest.FixtureRequest) -> Node:
    """Kinds come in turn."""
    chosen: Node = nodes[request.param]
    chosen.command("FLUSHALL")
    return chosen


def seconds(node: Node) -> int:
    return int(node.command("TIME").split(b"\r\n")[2])


@needs_clocks
def test_a_step_of_the_clock_ends_what_has_a_ttl(node: Node) -> None:
    assert node.clock is not None
    node.command("SET", "a", "1", "PX", "60000")
    node.clock.offset = HOUR
    assert eventually(lambda: get(node, "a") is None)
    assert seconds(node) == pytest.approx(time.time() + HOUR, abs=5)
    node.clock.offset = -HOUR
    assert eventually(lambda: seconds(node) < time.time() - HOUR + 5)
    node.clock.offset = 0.0
    assert eventually(lambda: abs(seconds(node) - time.time()) < 5)


@needs_clocks
def test_a_clients_wall_clock_steps_and_no_other(tmp_path: Path) -> None:
    clock = clocks.Clock(clocks.build(tmp_path), "client")
    code = "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic())"
    clock.offset = -HOUR
    call = [*clock.command, sys.executable, "-c", code]
    told = subprocess.run(call, capture_output=True, text=True, timeout=30, check=True).stdout.split()
    clock.close()
    true = [time.time() - HOUR, time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()]
    assert [float(one) for one in told] == pytest.approx(true, abs=60)


def test_a_node_comes_back_empty_with_its_aof_or_with_an_old_disk(node: Node) -> None:
    node.command("SET", "a", "old")
    assert eventually(lambda: b"old" in b"".join(path.read_bytes() for path in node.folder.glob("*/*.aof")))
    node.keep_disk()
    node.command("SET", "a", "new")
    node.restart()
    assert get(node, "a") == "new"
    node.kill()
    node.put_back()
    node.start()
    assert get(node, "a") == "old"
    node.kill()
    node.wipe()
    node.start()
    assert get(node, "a") is None


@needs_clocks
def test_large_steps_and_lost_memory_keep_apart(nodes: list[Node]) -> None:
    told: list[str] = []
    conditions = Conditions(nodes, ["x"], lambda what, _: told.append(what))

    def remember(at: float) -> None:
        for one in nodes:
            one.command("SET", "ql:fence:{x}", str(int(at * 1e6)))

    conditions.memory_is_lost()
    remember(time.time() - 1)
    assert not conditions.clocks_may_go_far(), "a fence from before the loss may be all that a node knows"
    remember(time.time() + CLAMP)
    assert not conditions.clocks_may_go_far(), "a client that is ahead may have given it before the loss"
    remember(time.time() + 1)
    assert conditions.clocks_may_go_far()
    conditions.set_clocks({nodes[0]: 0.3})
    assert not conditions.memory_may_go()
    conditions.set_clocks({nodes[0]: 0.0})
    assert not conditions.memory_may_go(), "a fence of the clock ahead may be higher than the true time"
    assert eventually(conditions.memory_may_go)
    assert told == ["broken"] * 4, "each step before it is done, and when it was seen"
    conditions.set_clocks({nodes[0]: 0.001})
    assert told == ["broken"] * 4, "a step within the allowance breaks nothing"
    conditions.set_clocks({nodes[0]: SMALL})
    assert conditions.memory_may_go()
    conditions.set_clocks({nodes[0]: 0.0})


PARTITION = """
import socket, subprocess, sys
from tests.live.chaos.network import Network

ASK = "import socket; s = socket.create_connection((%r, %d), timeout=1); s.settimeout(1); print(s.recv(1))"


def hears(side):
    call = [*net.inside(side), sys.executable, "-c", ASK % (net.nodes[2], server.getsockname()[1])]
    child = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    server.settimeout(2.0)
    try:
        connection, _ = server.accept()
        came = True
        connection.sendall(b"x")
    except OSError:
        came = False
    return came, child.communicate()[0] == b"b'x'\\n"


with Network(5) as net, socket.create_server(("0.0.0.0", 0)) as server:
    print(hears(0))
    net.cut(0, 2, True, False)
    print(hears(0), hears(1))
    net.mend(0, 2, True, False)
    print(hears(0))
    net.cut(0, 2, False, True)
    print(hears(0)[1], hears(1))
    net.mend(0, 2, False, True)
    net.cut(0, 3, True, True)
    print(hears(0))
"""


@needs_network
def test_a_partition_cuts_one_side_from_one_node_in_one_direction(tmp_path: Path) -> None:
    script = tmp_path / "partition.py"
    script.write_text(PARTITION)
    before = Path("/proc/net/dev").read_text().count(":")
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    call = [sys.executable, str(script)]
    done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        "(True, True)",
        "(False, False) (True, True)",
        "(True, True)",
        "False (True, True)",
        "(True, True)",
    ], done.stderr
    assert Path("/proc/net/dev").read_text().count(":") == before, "the machine's own network is as it was"
