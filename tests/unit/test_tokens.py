"""Tokens: unguessable, new every time, readable behind the secret part."""

from __future__ import annotations

import os
import re

import pytest

import quorumlock
from quorumlock import process
from quorumlock.process import HOST_CHARACTERS, Process, anonymous_token, token


def test_a_token_is_twenty_random_bytes_and_says_who_behind_them() -> None:
    assert re.fullmatch(rf"[0-9a-f]{{40}}@[\w.-]*:{os.getpid()}", token())
    assert re.fullmatch("[0-9a-f]{40}", anonymous_token())


@pytest.mark.parametrize("make", [token, anonymous_token])
def test_no_two_tokens_are_alike(make: type[str]) -> None:
    assert len({make()[:40] for _ in range(1000)}) == 1000


def test_a_long_or_strange_host_name_is_capped_and_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "whoami", "")
    monkeypatch.setattr(process, "_host", lambda: "a b\n{x}*" + "h" * 300)
    host = token()[41:].rpartition(":")[0]
    assert host == ("abx" + "h" * 300)[:HOST_CHARACTERS]


def test_identify_false_leaves_the_host_out() -> None:
    assert "@" in quorumlock.connect("redis://a")._fleet.new_token("")
    assert "@" not in quorumlock.connect("redis://a", identify=False)._fleet.new_token("")
