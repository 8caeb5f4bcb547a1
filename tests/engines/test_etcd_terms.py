"""The etcd engine, and leaders that were deposed without knowing it: played by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quorumlock.core.requests import Acquire, Extend, Kept, Request
from quorumlock.core.votes import Answer, Cause, Vote
from quorumlock.engines.etcd import EtcdEngine
from quorumlock.engines.etcd.leases import Deed
from quorumlock.engines.etcd.talk import Post, Reply
from quorumlock.options import Settings
from quorumlock.retry import DEFAULT_RETRY

SETTINGS = Settings("", 0.05, 0.01, 60.0, None, False, 86400.0, True, DEFAULT_RETRY, 5.0, None, None, None)
LEASE = 7


@pytest.fixture
def engine() -> EtcdEngine:
    engine = EtcdEngine("etcd://h", SETTINGS)
    engine.leases._idle = {10: [(LEASE, engine.clock())]}
    return engine


def played(engine: EtcdEngine, request: Request, replies: list[tuple[str, dict[str, Any]]]) -> Answer:
    """What a request comes to, if these are the answers; each must be asked for in turn."""
    steps = engine._answer(request)
    reply: Reply | None = None
    try:
        while True:
            wanted = steps.send(reply)
            assert isinstance(wanted, Post)
            path, told = replies.pop(0)
            assert wanted.path == path
            reply = Reply(200, json.dumps(told).encode())
    except StopIteration as done:
        assert not replies, "not all of it was asked for"
        answer: Answer = done.value
        return answer


def renewed(term: int) -> tuple[str, dict[str, Any]]:
    return "/v3/lease/keepalive", {"result": {"header": {"raft_term": str(term)}, "ID": str(LEASE), "TTL": "10"}}


def done(term: int) -> tuple[str, dict[str, Any]]:
    return "/v3/kv/txn", {"header": {"raft_term": str(term), "revision": "5"}, "succeeded": True}


ACQUIRE = Acquire("a", "token", 10_000, 0)


def test_a_lock_is_granted_where_both_were_answered_in_one_term(engine: EtcdEngine) -> None:
    answer = played(engine, ACQUIRE, [renewed(2), done(2)])
    assert (answer.vote, answer.fence) == (Vote.GRANTED, 5)


def test_a_lease_that_an_old_leader_has_renewed_is_renewed_again(engine: EtcdEngine) -> None:
    """Nobody but the old leader knows of that renewal: on the new one the lease may end before its holder does."""
    answer = played(engine, ACQUIRE, [renewed(2), done(3), renewed(3), done(3)])
    assert answer.vote is Vote.GRANTED


def test_an_extension_counts_only_in_one_term(engine: EtcdEngine) -> None:
    engine.leases.enter("token", ["a"], Deed(LEASE, 10, 10_000, 0, ""))
    request = Extend((Kept("a", "token", 10_000, 5),))
    assert played(engine, request, [renewed(2), done(2)]).vote is Vote.GRANTED
    assert played(engine, request, [renewed(2), done(3), renewed(3), done(3)]).vote is Vote.GRANTED


def test_who_finds_another_leader_each_time_does_not_know(engine: EtcdEngine) -> None:
    engine.leases.enter("token", ["a"], Deed(LEASE, 10, 10_000, 0, ""))
    request = Extend((Kept("a", "token", 10_000, 5),))
    restless = [one for term in range(2, 6) for one in (renewed(term), done(term + 1))]
    answer = played(engine, request, restless)
    assert (answer.vote, answer.cause) == (Vote.UNKNOWN, Cause.FAILED)


def test_a_lease_that_is_over_is_no_extension(engine: EtcdEngine) -> None:
    engine.leases.enter("token", ["a"], Deed(LEASE, 10, 10_000, 0, ""))
    path, told = renewed(2)
    del told["result"]["TTL"]
    missing: dict[str, Any] = {"response_range": {"header": {}}}
    refused = "/v3/kv/txn", {"header": {"raft_term": "2", "revision": "5"}, "responses": [missing, missing]}
    answer = played(engine, Extend((Kept("a", "token", 10_000, 5),)), [(path, told), refused])
    assert (answer.vote, answer.cause) == (Vote.REFUSED, Cause.ABSENT)
