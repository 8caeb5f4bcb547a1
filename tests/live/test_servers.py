"""Servers of several processes side by side: each has its own port, and knows its own server."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from quorumlock.lab import servers as lab
from quorumlock.lab.servers import Server, Servers, free_port, give_back

pytestmark = [pytest.mark.live, pytest.mark.real_time]

ANOTHER = """
import random, sys
from quorumlock.lab.servers import free_port
random.seed(int(sys.argv[1]))
print(free_port())
"""


class Order:
    """An order in which to try ports, here and in another process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seed = random.randrange(2**32)
        monkeypatch.setattr(lab, "random", random.Random(self.seed))

    def port_of_another(self) -> int:
        """What another process gets, that tries the same ports in the same order."""
        command = [sys.executable, "-c", ANOTHER, str(self.seed)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Order:
    return Order(monkeypatch)


def test_a_port_is_not_given_by_two_processes(order: Order) -> None:
    mine = free_port()
    try:
        assert order.port_of_another() != mine
    finally:
        give_back(mine)
    assert order.port_of_another() == mine, "given back, it is free for everybody"


def test_a_port_stays_claimed_while_its_server_is_restarted(kind: str, order: Order) -> None:
    with Server(kind) as server:
        server.kill()
        assert order.port_of_another() != server.port
        server.start()


def test_another_server_is_not_taken_for_ones_own(
    kind: str, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(kind) as server, monkeypatch.context() as patch:
        patch.setattr(lab, "READY_WITHIN", 0.2)
        patch.setattr(server, "port", servers[0].port)
        with pytest.raises(RuntimeError, match="did not come up"):
            server.wait_until_ready()
