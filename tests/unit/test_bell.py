"""The bell that wakes a polling thread: who hears it does not wait for it."""

from __future__ import annotations

import select

from quorumlock.runners.connecting import Bell


def heard_within(bell: Bell, milliseconds: int) -> bool:
    poll = select.poll()
    poll.register(bell.fd, select.POLLIN)
    return bool(poll.poll(milliseconds))


def test_a_bell_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert heard_within(bell, 1000)
    bell.hear()
    assert not heard_within(bell, 0)


def test_to_hear_a_silent_bell_does_not_wait() -> None:
    """Somebody else may have heard it since poll said so: waiting here would have no timeout."""
    Bell().hear()
