"""Passwords reach no error, no repr and no log, however a URL is written or misspelled."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

import quorumlock
from quorumlock import LockError
from quorumlock.engines.redis.engine import redacted

from .examples import examples

SECRET = "hunter2"

SHAPES = [
    "redis://:{}@host:6379",
    "redis://user:{}@host:6379/1",
    "rediss://user:{}@host",
    "valkey://:{}@host:1",
    "valkeys://:{}@host:1",
    "unix://:{}@/run/redis.sock",
    "unix://user:{}@/run/redis.sock?db=2",
    "redis://host?password={}",
    "redis://host?username=u&password={}&db=1",
    "unix:///run/s.sock?password={}",
    # Malformed, in ways in which people do write them.
    "redis://:{}@host:port",
    "redis://:{}@host:99999999",
    "redis://:{}@[::1:6379",
    "redis://:{}@host?db=first",
    "redis://host:port?password={}",
    "redis://host?password={}&socket_timeout=soon",
    "redis://:{}@host1,host2:6379",
    "redis://:{}@host1:1,host2:2",
    "redis://:{}@host:6379,",
    "redis://:a@b:{}@host:port",
    "redis://user:{}@:port",
    "redis://:{}@host:1, redis://:{}@host:2",
    "redis://:a/{}@host:6379",
    "redis://:{}/b@host:6379",
    "redis://:{}?b@host:6379",
    "redis://:{}#b@host:6379",
    "redis://:a?{}@host:6379",
    "redis://:a b{}\n@host:x",
    "redis://host?password=a@{}",
    "redis://host?password={}@b",
    "redis://host/0?password=a@{}&db=x",
    "unix:///s.sock?password=a@{}",
    "redis:/:{}@host",
    "redis:://:{}@host",
    "user:{}@host:6379",
    ":{}@host:6379",
    "http://:{}@host",
    "postgres://user:{}@host/db",
    "REDIS://:{}@host",
]


def told(locker: Any) -> str:
    """Everything that a locker shows of itself."""
    lock = locker.lock("job")
    parts = [locker, locker.engine, lock, *locker.engine.nodes, *locker.engine.labels, locker._settings]
    return " ".join(f"{one!r} {one}" for one in parts)


def everything_said(url: str, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    said = []
    for connect in (quorumlock.connect, quorumlock.connect_async):
        try:
            said.append(told(connect(url)))
        except LockError as error:
            said += [str(error), repr(error), "".join(traceback.format_exception(error))]
            said.append(repr(pickle.dumps(error)))
    # A traceback quotes the source lines, which hold the shape but never the secret.
    return " ".join(said) + caplog.text


@pytest.mark.parametrize("shape", SHAPES)
def test_no_password_is_shown_however_the_url_is_written(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = shape.replace("{}", SECRET)
    assert SECRET in url
    assert SECRET not in everything_said(url, caplog)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_password_is_shown_in_a_list_of_urls_either(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = shape.replace("{}", SECRET)
    try:
        said = told(quorumlock.connect(["redis://one", url, url, "redis://two"]))
    except LockError as error:
        said = f"{error!r} {error}"
    assert SECRET not in said + caplog.text


def test_the_check_would_see_a_password_that_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert SECRET in everything_said(f"redis://{SECRET}:1", caplog)


def test_digits_of_a_password_with_a_slash_are_not_taken_for_a_port() -> None:
    """`redis://:12/34@host` reads as port 12 of localhost: neither the server nor the secret's place."""
    with pytest.raises(LockError):
        quorumlock.connect("redis://:12/34@host:6379")


CREDENTIALS = ["redis://user:{}@host:6379/1", "redis://:{}@host:port", "redis://host?password={}", "unix://:{}@/s"]


@examples
@given(st.text(st.characters(exclude_characters="@", codec="utf-8"), min_size=4), st.sampled_from(CREDENTIALS))
def test_a_redacted_url_shows_nothing_of_a_password(password: str, shape: str) -> None:
    secret = f"<<{password}>>"
    assert "<<" not in redacted(shape.replace("{}", secret))
    assert ">>" not in redacted(shape.replace("{}", secret))


def test_a_redacted_url_still_says_where() -> None:
    assert redacted("redis://user:pw@host:6379/1?db=2") == "redis://***@host:6379/1?…"
    assert redacted("redis://host:port") == "redis://host:port"


def test_no_password_of_a_client_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    provider = redis.UsernamePasswordCredentialProvider("user", SECRET)
    for client in (redis.Redis("a", 1, password=SECRET), redis.Redis("a", 1, credential_provider=provider)):
        assert SECRET not in told(quorumlock.connect(clients=[client]))
    assert SECRET not in caplog.text


def test_a_token_is_never_shown_whole() -> None:
    from quorumlock.core.effects import Route
    from quorumlock.core.redlock import Grant
    from quorumlock.process import anonymous_token, token
    from quorumlock.sync.lease import Lease

    locker = quorumlock.connect("redis://a")
    for secret in (token(), anonymous_token()):
        tally = locker._fleet.tally()
        grant = Grant("job", secret, 1, 10.0, 0.0, tally, Route())
        lease = Lease(locker, grant, locker.lock("job", keep=False)._options)
        assert secret[:12] not in f"{lease!r} {lease}"
        assert lease.token == secret
