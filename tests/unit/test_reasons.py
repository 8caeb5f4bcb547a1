"""Why a connection could not be made, as people are told."""

from __future__ import annotations

import pytest

from quorumlock.runners.base import reason


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Error 111 connecting to 127.0.0.1:6379. Connection refused.", "Connection refused"),
        ("Error -2 connecting to nowhere:6379. Name or service not known.", "Name or service not known"),
        ("invalid username-password pair.", "invalid username-password pair"),
        ("", "ValueError"),
        ("x" * 500, "x" * 160),
    ],
)
def test_the_address_is_not_said_twice(said: str, told: str) -> None:
    assert reason(ValueError(said)) == told
