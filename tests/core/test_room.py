"""The room: who of a process asks the nodes, who is told, and that nothing is left when nobody waits."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

import pytest

from quorumlock.core import room as room_module
from quorumlock.core.effects import Route
from quorumlock.core.redlock import Grant
from quorumlock.core.room import HANDOVERS, KNOWN_MOST, Room, Watch

from .driver import World


def grant_of(name: str = "job", *, until: float = 1010.0) -> Grant:
    return Grant(name, "token", 5, 10.0, until, World(1).fleet.tally(), Route())


def waiting_in(room: Room, count: int, name: str = "job") -> list[Watch]:
    watches = [Watch(name) for _ in range(count)]
    for watch in watches:
        watch.arm()
        room.enter(watch)
    return watches


def left_over(room: Room) -> dict[str, Any]:
    """Everything that a room still remembers of anybody."""
    kept = {name: value for name, value in vars(room).items() if isinstance(value, dict) and value}
    return {name: value for name, value in kept.items() if name != "_polite"}


@contextmanager
def interrupted_at(function: str, line: int) -> Iterator[list[bool]]:
    """Raises KeyboardInterrupt before the `line`-th line that `function` of the room executes, once."""
    struck: list[bool] = []
    seen = 0

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if event == "line" and not struck:
            seen += 1
            if seen == line:
                struck.append(True)
                raise KeyboardInterrupt
        return local

    def trace(frame: FrameType, event: str, _: object) -> Any:
        mine = frame.f_code.co_name == function and frame.f_code.co_filename == room_module.__file__
        return local if mine else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield struck
    finally:
        sys.settrace(before)


def test_one_contends_and_the_others_stand_in_line_in_the_order_they_came() -> None:
    room = Room()
    watches = waiting_in(room, 4)
    assert [room.contends(watch) for watch in watches] == [True, False, False, False]
    for gone, following in itertools.pairwise(watches):
        room.leave(gone)
        assert room.contends(following)
        assert following.called, "nobody told it"
    room.leave(watches[-1])
    assert left_over(room) == {}


def test_who_leaves_the_line_is_not_promoted() -> None:
    room = Room()
    first, second, third = waiting_in(room, 3)
    room.leave(second)
    room.leave(first)
    assert room.contends(third)
    assert not second.called
    room.leave(third)
    assert left_over(room) == {}


def test_names_have_nothing_to_do_with_one_another() -> None:
    room = Room()
    mine, other = waiting_in(room, 1, "a")[0], waiting_in(room, 1, "b")[0]
    assert room.contends(mine)
    assert room.contends(other)
    room.leave(mine)
    assert not other.called
    room.leave(other)
    assert left_over(room) == {}


def test_leaving_twice_does_no_harm() -> None:
    room = Room()
    first, second, third = waiting_in(room, 3)
    room.leave(first)
    room.leave(first)
    assert room.contends(second)
    room.leave(second)
    room.leave(second)
    assert room.contends(third)
    room.leave(third)
    assert left_over(room) == {}


@pytest.mark.parametrize("function", ["leave", "_promote", "_tidy", "enter", "expect"])
def test_an_interrupt_anywhere_leaves_no_line_without_a_contender(function: str) -> None:
    """Whoever is interrupted leaves, perhaps for the second time: then somebody is next, or nobody waits."""
    for line in range(1, 40):
        room = Room()
        first, second = waiting_in(room, 2)
        third = Watch("job")
        room.expect(second, "ticket")
        with interrupted_at(function, line) as struck:
            try:
                room.enter(third)
                room.expect(third, "another")
                room.leave(third)
            except KeyboardInterrupt:
                room.leave(third)
            try:
                room.leave(first)
            except KeyboardInterrupt:
                room.leave(first)
        assert room.contends(second), f"interrupted before line {line} of {function}, nobody is next"
        assert second.called
        room.leave(second)
        assert left_over(room) == {}, f"interrupted before line {line} of {function}"
        if not struck:
            assert line > 1, "it was never called"
            return
    pytest.fail("it never ran to its end")


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_come_and_go_never_lose_their_turn(seed: int) -> None:
    """Many threads enter, wait until they contend, and leave; some give up before it is their turn."""
    room = Room(mutex=threading.RLock())
    inside = overlaps = served = 0
    stuck: list[int] = []

    def work(index: int) -> None:
        nonlocal inside, overlaps, served
        rng = random.Random(seed * 1000 + index)
        for _ in range(60):
            watch, told = Watch("job"), threading.Event()
            watch.arm()
            watch.on_ring = told.set
            room.enter(watch)
            gives_up = rng.random() < 0.3
            end = time.monotonic() + 10
            while not room.contends(watch) and not gives_up:
                if not told.wait(end - time.monotonic()):
                    stuck.append(index)
                    break
                told.clear()
            if room.contends(watch):
                inside += 1
                overlaps += inside > 1
                served += 1
                inside -= 1
            room.leave(watch)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change as often as they can
    try:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(before)
    assert not stuck, f"threads {stuck} were never promoted"
    assert served > 8 * 60 / 2
    assert left_over(room) == {}


def test_a_lease_of_the_room_is_known_until_it_is_over_lost_or_given_back() -> None:
    room, grant = Room(), grant_of(until=1010.0)
    room.granted(grant)
    assert room.holds("job", 1000.0) == 1010.0
    assert room.holds("other", 1000.0) == 0
    grant.valid_until = 1020.0  # renewed
    assert room.holds("job", 1015.0) == 1020.0
    assert room.holds("job", 1020.0) == 0, "its time is up"
    for end in (room.forget, room.ended, lambda one: room.freed(one, False)):
        room.granted(grant)
        end(grant)
        assert room.holds("job", 1000.0) == 0
    room.granted(grant)
    room.ordered = True
    grant.over = True  # a release is on its way: whoever asks now asks behind it
    assert room.holds("job", 1000.0) == 0
    assert left_over(room) == {}


def test_what_becomes_of_an_old_lease_does_not_touch_a_newer_one() -> None:
    room, old, new = Room(), grant_of(), grant_of(until=1030.0)
    room.granted(old)
    room.granted(new)
    room.freed(old, False)
    room.ended(old)
    assert room.holds("job", 1000.0) == 1030.0


@pytest.mark.parametrize("how", ["freed", "ended"])
def test_the_contender_is_told_when_a_lease_of_the_room_is_over(how: str) -> None:
    room, grant = Room(), grant_of()
    room.granted(grant)
    first, second = waiting_in(room, 2)
    rings: list[int] = []
    first.on_ring = lambda: rings.append(1)
    room.freed(grant, False) if how == "freed" else room.ended(grant)
    assert first.called
    assert rings
    assert not second.called, "one is enough"


def test_who_stands_in_no_line_is_told_as_well() -> None:
    """Fair waiters have tickets instead; a release of this room says to the nodes that it tells its own waiters."""
    for how in ("freed", "ended"):
        room, grant = Room(), grant_of()
        room.granted(grant)
        fair, later, elsewhere = Watch("job"), Watch("job"), Watch("other")
        for watch in (fair, later, elsewhere):
            watch.arm()
            room.expect(watch, f"ticket-{id(watch)}")
        room.freed(grant, False) if how == "freed" else room.ended(grant)
        assert fair.called, f"{how}, and nobody was told"
        assert not later.called, "one is enough: it is the first one's turn"
        assert not elsewhere.called
        for watch in (fair, later, elsewhere):
            room.leave(watch)
        assert left_over(room) == {}


def test_the_room_stands_back_when_it_has_handed_on_often_enough() -> None:
    room = Room()
    waiting_in(room, 1)
    for turn in range(HANDOVERS):
        room.freed(grant_of(), True)
        assert not room.polite("job"), f"after {turn + 1} hand-overs"
    room.freed(grant_of(), True)
    assert room.polite("job")
    assert not room.polite("other")
    room.stood_back("job")
    assert not room.polite("job")


def test_the_room_stands_back_at_once_when_nobody_was_waiting_in_it() -> None:
    room = Room()
    room.freed(grant_of(), True)
    assert room.polite("job")
    room.freed(grant_of(), False)  # nobody else waits any more
    assert not room.polite("job")


def test_hand_overs_are_counted_anew_when_nobody_else_waits() -> None:
    room = Room()
    waiting_in(room, 1)
    for _ in range(3 * HANDOVERS):
        room.freed(grant_of(), True)
        room.freed(grant_of(), False)
    assert not room.polite("job")


def test_no_more_names_are_remembered_than_is_reasonable() -> None:
    room = Room()
    for index in range(3 * KNOWN_MOST):
        room.freed(grant_of(f"job-{index}"), True)
    assert len(room._polite) <= KNOWN_MOST
    assert left_over(room) == {}


def test_an_announcement_rings_the_ticket_it_is_about_and_no_other() -> None:
    room = Room()
    mine, other = waiting_in(room, 1, "a")[0], waiting_in(room, 1, "b")[0]
    room.expect(mine, "t1")
    room.expect(other, "t2")
    room.announced(2, "t1")
    room.announced(2, "unknown")
    assert (mine.rung, other.rung) == ({2}, set())
    room.announced(0, "t1")
    room.announced(0, "t1")
    assert mine.rung == {0, 2}
    mine.arm()
    assert mine.rung == set()
    room.leave(mine)
    room.announced(1, "t1")
    assert mine.rung == set(), "it has left"


def test_a_node_that_is_heard_again_makes_everybody_with_a_ticket_ask() -> None:
    room = Room()
    first, second = waiting_in(room, 2)
    room.expect(first, "t1")
    room.hears(0)
    assert room.ears == {0}
    assert first.called
    assert not second.called, "it has no ticket that could have been announced"
    room.deafened(0)
    assert room.ears == set()
    assert room.waiting
    room.leave(first)
    assert not room.waiting


def test_everybody_who_would_ask_is_stirred() -> None:
    room = Room()
    contender, in_line = waiting_in(room, 2)
    fair = Watch("job")
    fair.arm()
    room.expect(fair, "t")
    room.stir()
    assert contender.called
    assert fair.called
    assert not in_line.called, "it is called when the contender leaves"


def test_a_name_that_was_broken_is_forgotten_with_its_last_waiter() -> None:
    room = Room()
    first, second = waiting_in(room, 2)
    room.broken["job"] = 1000.0
    room.leave(first)
    assert room.broken, "the next one need not find out again"
    room.leave(second)
    assert room.broken == {}
    waiting_in(room, 1)
    room.broken["job"] = 1000.0
    room.granted(grant_of())
    assert room.broken == {}


def test_the_mutex_is_the_one_that_was_given() -> None:
    """A finaliser may run in another thread: what changes lines does so alone."""
    entered: list[int] = []

    class Mutex(AbstractContextManager[None]):
        def __enter__(self) -> None:
            entered.append(1)

        def __exit__(self, *_: object) -> None: ...

    room = Room(mutex=Mutex())
    first, second = waiting_in(room, 2)
    assert entered
    entered.clear()
    room.leave(second)
    room.leave(first)
    assert entered
