"""What the doctor could not look at, it does not call well."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorumlock.lab.servers import free_port

from .conftest import Start
from .examining import examined, fleet, only, troubles


def well(url: str, *options: str) -> tuple[dict[str, str], set[str]]:
    """What is said of each check that found nothing wrong; and the checks that could not be made."""
    found = examined(url, *options)
    return (
        {one["check"]: one["says"] for one in found if one["severity"] == "ok"},
        {one["check"] for one in found if one["severity"] == "unseen"},
    )


OF_NODES = {
    "same server", "role", "disk", "memory", "markers", "clocks", "clock steps", "latency", "rights", "version",
    "encryption",
}  # fmt: skip


def test_nodes_that_are_all_down() -> None:
    nowhere = ",".join(f"redis://:geheim@127.0.0.1:{free_port()}" for _ in range(3))
    said, unseen = well(nowhere)
    assert unseen == OF_NODES
    assert set(said) == {"persistence", "number of nodes"}, "for these nobody needs to look"
    assert well(nowhere, "--durable")[1] == OF_NODES | {"persistence"}


@pytest.mark.live
def test_one_that_is_up_and_two_that_are_not(start: Start) -> None:
    said, unseen = well(f"{start().url},redis://127.0.0.1:{free_port()},redis://127.0.0.1:{free_port()}")
    assert unseen == set()
    assert said["role"] == "all that answer are masters without replicas (seen on 1 of 3 nodes)"


@pytest.mark.live
def test_a_user_who_may_not_ask_for_info(start: Start) -> None:
    server = start()
    server.command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-info")
    _, unseen = well(server.url.replace("//", "//bob:pw@"))
    assert {"same server", "role", "disk", "memory", "version"} == unseen


@pytest.mark.live
def test_whether_writes_are_kept_is_seen_without_info(start: Start) -> None:
    forgets = start("--appendfsync", "always")
    keeps = start("--appendonly", "yes", "--appendfsync", "always")
    for server in (forgets, keeps):
        server.command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-info")
    found = troubles(fleet(forgets, keeps).replace("//", "//bob:pw@"), "persistence", "--durable")
    severity, node, says = only(found)
    assert (severity, node) == ("error", forgets.label)
    assert "appendonly no" in says


def test_a_file_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    said, unseen = well(f"sqlite:///{tmp_path}/no/locks.db")
    assert not said
    assert unseen == {"file system", "write-ahead log", "space", "access"}
    (tmp_path / "text").write_text("no database " * 100)
    assert well(f"sqlite:///{tmp_path}/text")[1] == {"write-ahead log"}
