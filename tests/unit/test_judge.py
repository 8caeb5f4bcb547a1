"""Which servers may belong to a fleet: every reason against one, and what is only warned of."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from quorumlock.core.requests import Join
from quorumlock.core.votes import Answer, Cause, Member, Vote
from quorumlock.engines.redis.node import Hello, Node, Terms

GOOD = Hello("known", b"0 60000 1 f00d 3 60000 0 1 id", 5_000_000, "run-1", "master", "standalone", 0, "noeviction")


def fleet(count: int = 3, **changes: object) -> list[Node]:
    terms = replace(Terms("f00d", count, 60.0, durable=False, quarantine=count >= 3), **changes)  # type: ignore[arg-type]
    nodes = [Node(index, f"host{index}:6379", terms) for index in range(count)]
    for node in nodes:
        node.mates = nodes
    return nodes


def refused(node: Node, hello: Hello, cause: Cause = Cause.MISFIT) -> str:
    """The sentence by which the server is refused, both when judged and when met."""
    judged, met = node.judge(hello), node.meet(hello)
    assert isinstance(judged, Answer)
    assert judged == met
    assert (judged.vote, judged.cause) == (Vote.REFUSED, cause)
    assert not node.met
    assert not node.run_id
    assert judged.detail.startswith(f"{node.label} "), "the message names the node"
    return judged.detail


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_an_independent_master_is_welcome(count: int, caplog: pytest.LogCaptureFixture) -> None:
    node = fleet(count)[0]
    assert node.meet(GOOD) is None
    assert node.met
    assert node.run_id == "run-1"
    assert not caplog.records


@pytest.mark.parametrize("role", ["slave", "replica", ""])
@pytest.mark.parametrize("count", [1, 3])
def test_a_replica_is_refused(role: str, count: int) -> None:
    assert "independent masters" in refused(fleet(count)[0], replace(GOOD, role=role, status="misfit"))


def test_a_cluster_node_is_unsupported() -> None:
    for count in (1, 3):
        text = refused(fleet(count)[0], replace(GOOD, mode="cluster"), Cause.UNSUPPORTED)
        assert "N independent masters" in text


def test_a_sentinel_is_refused() -> None:
    assert "List the masters themselves" in refused(fleet()[0], replace(GOOD, mode="sentinel"))


POLICIES = ["volatile-lru", "volatile-ttl", "volatile-random", "volatile-lfu", "allkeys-lru", "allkeys-random"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_server_that_may_evict_locks_is_refused_from_three_nodes_on(policy: str, count: int) -> None:
    text = refused(fleet(count)[0], replace(GOOD, maxmemory=1, policy=policy))
    assert policy in text
    assert "noeviction" in text


@pytest.mark.parametrize("count", [1, 2])
def test_below_three_nodes_eviction_is_warned_of_once(count: int, caplog: pytest.LogCaptureFixture) -> None:
    node = fleet(count)[0]
    evicting = replace(GOOD, maxmemory=1, policy="allkeys-lru")
    with caplog.at_level(logging.WARNING, "quorumlock"):
        assert node.meet(evicting) is None
        assert node.meet(evicting) is None
    [record] = caplog.records
    assert "host0:6379 may evict locks: maxmemory-policy is allkeys-lru" in record.getMessage()


@pytest.mark.parametrize(
    ("maxmemory", "policy"), [(0, "allkeys-lru"), (1, "noeviction"), (0, "noeviction"), (1, ""), (0, "")]
)
def test_a_server_that_cannot_evict_is_welcome(maxmemory: int, policy: str) -> None:
    assert fleet()[0].meet(replace(GOOD, maxmemory=maxmemory, policy=policy)) is None


def test_two_addresses_of_one_server_would_vote_twice() -> None:
    one, two, three = fleet()
    assert one.meet(GOOD) is None
    assert "and host0:6379 are one server" in refused(two, GOOD)
    assert three.meet(replace(GOOD, run_id="run-3")) is None
    assert one.meet(GOOD) is None, "a node is not its own double"


def test_a_server_that_restarted_under_the_same_address_is_no_double() -> None:
    one, two, _ = fleet()
    one.meet(GOOD)
    assert one.meet(replace(GOOD, run_id="run-2")) is None
    assert two.meet(GOOD) is None, "the old run id is free again"


MISMATCHES = [
    (b"0 60000 1 f00d 5 60000 0 1 id", "number of nodes 5 there, 3 here"),
    (b"0 60000 1 f00d 3 30000 0 1 id", "max_ttl 30 s there, 60 s here"),
    (b"0 60000 1 f00d 3 1500 0 1 id", "max_ttl 1.5 s there, 60 s here"),
    (b"0 60000 1 f00d 3 60000 1 1 id", "durable on there, off here"),
    (b"0 60000 1 f00d 3 60000 0 0 id", "quarantine off there, on here"),
    (b"0 60000 1 beef 3 60000 0 1 id", "node list beef there, f00d here"),
]


@pytest.mark.parametrize(("marker", "told"), MISMATCHES)
def test_every_term_in_which_fleets_differ_is_told_and_no_other(marker: bytes, told: str) -> None:
    text = refused(fleet()[0], replace(GOOD, status="misfit", marker=marker))
    assert f"({told})" in text
    assert "init_fleet(force=True)" in text


@pytest.mark.parametrize("marker", [b"0 60000 2 f00d 3 60000 0 1 id", b"0 0 17 and what nobody knows yet"])
def test_a_newer_format_is_refused_and_not_written_over(marker: bytes) -> None:
    text = refused(fleet()[0], replace(GOOD, status="misfit", marker=marker))
    assert "upgrade" in text
    assert "force" not in text
    assert fleet()[0].marked(replace(GOOD, status="marked", marker=marker)).cause is Cause.MISFIT


def test_several_differences_are_told_together() -> None:
    text = refused(fleet()[0], replace(GOOD, status="misfit", marker=b"0 1 1 beef 5 60000 0 1 id"))
    assert "number of nodes 5 there, 3 here; node list beef there, f00d here" in text


@pytest.mark.parametrize(
    "marker", [b"", b"hello", b"1 2 3", b"0 1 1 f00d 3 60000 0 1 id more", b"\xff\xfe", b"a b c d e f g h i"]
)
def test_a_marker_that_cannot_be_read_is_refused_and_nothing_breaks(marker: bytes) -> None:
    refused(fleet()[0], replace(GOOD, status="misfit", marker=marker))


def test_a_hidden_info_is_refused_where_quarantine_depends_on_it() -> None:
    text = refused(fleet()[0], replace(GOOD, run_id="", role="", mode="", policy=""))
    assert "+info" in text
    assert "quarantine=False" in text


@pytest.mark.parametrize("count", [1, 3])
def test_a_hidden_info_is_warned_of_where_nothing_depends_on_it(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = fleet(count, quarantine=False)
    hidden = replace(GOOD, run_id="", role="", mode="", policy="")
    with caplog.at_level(logging.WARNING, "quorumlock"):
        for node in nodes:
            assert node.meet(hidden) is None, "without a run id nobody is a double"
    assert len(caplog.records) == count
    assert "INFO" in caplog.text


@pytest.mark.parametrize(("status", "why"), [("new", "had no marker"), ("restarted", "has restarted")])
def test_a_quarantine_that_begins_is_told(status: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    node = fleet()[0]
    told: list[float] = []
    node.on_quarantine = lambda _, seconds: told.append(seconds)
    with caplog.at_level(logging.WARNING, "quorumlock"):
        assert node.meet(replace(GOOD, status=status, marker=b"6500000 60000 1 f00d 3 60000 0 1 id")) is None
    assert told == [1.5]
    assert f"host0:6379 {why}" in caplog.text
    assert "1.5 s" in caplog.text
    assert ("init" in caplog.text) == (status == "new"), "a fleet in use must not be made ready at once"


def test_a_quarantine_that_others_began_is_not_warned_of_again(caplog: pytest.LogCaptureFixture) -> None:
    node = fleet()[0]
    told: list[float] = []
    node.on_quarantine = lambda _, seconds: told.append(seconds)
    assert node.meet(replace(GOOD, marker=b"6500000 60000 1 f00d 3 60000 0 1 id")) is None
    assert told == [1.5]
    assert not caplog.records


@pytest.mark.parametrize(("ready_at", "left"), [(b"0", 0), (b"5000000", 0), (b"5000001", 1), (b"5001001", 2)])
def test_what_is_left_of_a_quarantine_is_rounded_up(ready_at: bytes, left: int) -> None:
    assert replace(GOOD, marker=ready_at + b" 60000 1").quarantine_ms() == left
    assert replace(GOOD, marker=b"").quarantine_ms() == 0


def test_what_join_answers_is_read_field_by_field() -> None:
    hello = Hello.parse([b"known", b"m", b"17", b"run", b"master", b"standalone", b"1024", b"noeviction"])
    assert hello == Hello("known", b"m", 17, "run", "master", "standalone", 1024, "noeviction")
    assert Hello.parse([b"new", b"m", b"17", b"", b"", b"", b"", b""]).maxmemory == 0


@pytest.mark.parametrize(
    "reply", [None, 5, b"known", [], [b"known"], [b""] * 8, [b"a"] * 8, [b"a"] * 9, [None] * 8]
)
def test_what_is_no_answer_of_join_is_not_taken_for_one(reply: object) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        Hello.parse(reply)


@pytest.mark.parametrize(
    ("marker", "member"),
    [
        (b"0 60000 1 f00d 3 60000 0 1 id", Member("", 0, mine=True)),
        (b"0 60000 1 f00d 3 1000 0 1 id", Member("", 0, mine=True)),
        (b"9007199254740991 60000 1 f00d 3 60000 0 1 from:beef:5", Member("beef", 5, mine=True, closed=True)),
        (b"9007199254740991 60000 1 f00d 3 60000 0 1 from::0", Member("", 0, mine=True, closed=True)),
        (b"0 60000 1 beef 3 60000 0 1 id", Member("beef", 3)),
        (b"0 60000 1 f00d 5 60000 0 1 id", Member("f00d", 5)),
    ],
)
def test_a_survey_tells_from_which_fleet_a_node_would_be_taken(marker: bytes, member: Member) -> None:
    answer = fleet()[0].marked(replace(GOOD, status="marked", marker=marker))
    assert answer.cause is Cause.HELD
    assert answer.member == member
    assert answer.wait_ms == 0, "no hundred years"


FREE = replace(GOOD, status="free", marker=b"")


def test_a_node_without_a_marker_is_looked_at_twice_before_it_is_taken() -> None:
    one, two, three = fleet()
    assert one.next_join(Join(), 2, 5.0) is None, "nothing is known of the others yet"
    answer = one.meet(FREE)
    assert answer is not None
    assert answer.cause is Cause.QUARANTINE
    two.confirmed_at = 5.0
    three.health.failed(0.0, "Connection refused")
    assert one.next_join(Join(), 1, 5.0) == Join()
    assert one.next_join(Join(), 2, 5.0) == Join(enter=True)
    assert one.next_join(Join(enter=True), 3, 5.0) is None, "somebody took it away again"
    assert fleet(1)[0].next_join(Join(), 1, 5.0) == Join(enter=True), "one node has no others to ask"


def test_what_was_heard_before_and_silence_say_nothing_of_a_change() -> None:
    one, two, three = fleet()
    two.confirmed_at = three.confirmed_at = 4.9
    assert one.next_join(Join(), 2, 5.0) is None, "all were well, before it was found empty"
    three.confirmed_at = 5.0
    two.health.failed(0.0, Cause.SILENT.value)
    assert one.next_join(Join(), 2, 5.0) is None, "the silent one may have been taken into another fleet"
    two.health.answered()
    two.confirmed_at = 5.1
    assert one.next_join(Join(), 2, 5.2) == Join(enter=True)
    assert one.next_join(Join(), 2, 9.0) is None, "that was long ago"


def test_a_majority_that_is_sure_need_not_wait_for_a_silent_node() -> None:
    one, *others = fleet(5)
    assert one.next_join(Join(), 2, 5.0) is None
    for mate in others[:3]:
        assert one.next_join(Join(), 2, 5.0) is None
        mate.confirmed_at = 5.0
    assert one.next_join(Join(), 2, 5.0) == Join(enter=True)


def test_nodes_that_are_all_empty_are_taken() -> None:
    one, two, three = fleet()
    for node in (one, two):
        assert node.next_join(Join(), 2, 5.0) is None
    assert three.next_join(Join(), 2, 5.0) == Join(enter=True)
    assert one.next_join(Join(), 2, 5.0) == Join(enter=True)


def test_a_node_without_a_marker_is_left_alone_while_another_is_of_another_fleet() -> None:
    one, two, three = fleet()
    three.health.failed(0.0, "Connection refused")
    refused(two, replace(GOOD, status="misfit", marker=b"0 1 1 beef 3 60000 0 1 id", run_id="run-2"))
    assert one.next_join(Join(), 2, 5.0) is None
    answer = one.meet(FREE)
    assert answer is not None
    assert answer.cause is Cause.MISFIT
    assert "left running" in answer.detail
    assert two.meet(replace(GOOD, run_id="run-2")) is None
    two.confirmed_at = 5.0
    assert one.next_join(Join(), 2, 5.0) == Join(enter=True)
