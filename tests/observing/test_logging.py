"""Events as log records: at levels that leave a normal log to trouble, and without secrets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

import quorumlock
from quorumlock import events
from quorumlock.engines.memory import MemoryEngine
from quorumlock.errors import LossReason
from quorumlock.observing import log_events
from quorumlock.observing.logging import _SAYS, LEVELS


@pytest.fixture
def locks() -> Iterator[quorumlock.Locker]:
    with quorumlock.connect("memory://") as locker:
        yield locker


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "quorumlock.events"]


def test_nothing_is_logged_unless_it_is_asked_for(
    locks: quorumlock.Locker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        locks.lock("a").acquire().release()
    assert [one for one in caplog.records if one.name.startswith("quorumlock")] == []


def test_routine_is_not_seen_in_a_normal_log(locks: quorumlock.Locker, caplog: pytest.LogCaptureFixture) -> None:
    log_events(locks)
    with caplog.at_level(logging.INFO), locks.lock("a"), pytest.raises(quorumlock.AcquireTimeout):
        locks.lock("a").acquire(timeout=0.3)
    assert [level for level, _ in said(caplog)] == ["INFO"]
    assert "'a' was not acquired (timeout) after " in said(caplog)[0][1]


def test_a_story_is_told_in_words(locks: quorumlock.Locker, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(locks.engine, MemoryEngine)
    stop = log_events(locks)
    with caplog.at_level(logging.DEBUG):
        lease = locks.lock("or\u202eders").acquire()
        with pytest.raises(quorumlock.AcquireTimeout):
            locks.lock("or\u202eders").acquire(timeout=0.3)
        lease.extend(20)
        locks.engine.force_lose("or\u202eders")
        lease.release()
        stop()
        locks.lock("b").acquire().release()
    levels, messages = zip(*said(caplog), strict=True)
    assert levels == ("DEBUG", "DEBUG", "INFO", "DEBUG", "ERROR", "WARNING")
    for message, expected in zip(
        messages, ["acquired with fence", "is waited for: held by fence", "not acquired", "renewed for 20 s",
                   "lost after", "released late"], strict=True,
    ):  # fmt: skip
        assert expected in message
        assert "'or\\u202eders'" in message, "shown escaped"
        assert lease.token.partition("@")[0] not in message
    assert isinstance(caplog.records[0].quorumlock, events.Acquired)  # type: ignore[attr-defined]


def test_a_level_and_a_logger_of_ones_own(locks: quorumlock.Locker, caplog: pytest.LogCaptureFixture) -> None:
    mine = logging.getLogger("mine")
    log_events(locks, logger=mine, level=logging.INFO)
    with caplog.at_level(logging.DEBUG):
        lease = locks.lock("a").acquire()
        assert locks.lock("a").try_acquire() is None
        lease.release()
    assert [(one.name, one.levelname) for one in caplog.records] == [("mine", "INFO")]


def test_on_asyncio_too(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with quorumlock.connect_async("memory://") as locks:
            log_events(locks)
            async with locks.lock("a"):
                pass

    with caplog.at_level(logging.DEBUG):
        asyncio.run(main())
    assert len(said(caplog)) == 2


EXAMPLES = {
    "reason": LossReason.TAKEN, "nodes": ("n",), "fence": 2, "seen": 3, "held": 1.5, "waited": 1.5, "late": 0.1,
    "remaining": 1.0, "ttl": 3.0, "seconds": 2.0, "ahead": 0, "confirmed": False, "after": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in events.__all__ if name != "Event"])
def test_every_event_has_its_level_and_its_words(name: str) -> None:
    kind = getattr(events, name)
    assert kind in LEVELS
    fields = {field: EXAMPLES.get(field, "x") for field in kind.__dataclass_fields__}
    if name == "Confirmed":
        fields["nodes"] = 2
    message, *values = _SAYS[kind](kind(**fields))
    assert isinstance(message, str)
    assert len(message % tuple(values)) > 10
