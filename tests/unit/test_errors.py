"""The tree of errors: what is what, and that all of it pickles."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from quorumlock import errors
from quorumlock.core.votes import Cause, Tally, unknown
from quorumlock.errors import (
    AcquireTimeout,
    ConfigurationError,
    EngineError,
    EngineProtocolError,
    EngineTimeout,
    LeaseClosed,
    LeaseError,
    LeaseLost,
    LockError,
    LockHeld,
    LossReason,
    NoQuorum,
    NotAcquired,
    StaleFence,
    Unsupported,
    VersionConflict,
)

TREE: dict[type[LockError], tuple[type[Exception], ...]] = {
    NotAcquired: (LockError,),
    LockHeld: (NotAcquired,),
    AcquireTimeout: (NotAcquired, TimeoutError),
    NoQuorum: (NotAcquired, ConnectionError),
    LeaseError: (LockError,),
    LeaseLost: (LeaseError,),
    LeaseClosed: (LeaseError, RuntimeError),
    StaleFence: (LockError,),
    VersionConflict: (LockError,),
    EngineError: (LockError,),
    EngineTimeout: (EngineError,),
    EngineProtocolError: (EngineError,),
    ConfigurationError: (LockError, ValueError),
    Unsupported: (LockError,),
}


def a_tally() -> Tally:
    tally = Tally(("a:1", "b:2", "c:3"), 2)
    tally.cast(0, unknown(Cause.SILENT, "50 ms"))
    return tally


EXAMPLES: list[LockError] = [
    LockError("plain"),
    NotAcquired("no", a_tally(), True),
    NotAcquired("no"),
    LockHeld("held", a_tally()),
    AcquireTimeout("late", a_tally(), may_linger=True),
    NoQuorum("broken", a_tally(), True),
    LeaseError("lease"),
    *(LeaseLost("gone", reason) for reason in LossReason),
    LeaseClosed("closed"),
    StaleFence("old", 33, 34),
    VersionConflict("changed"),
    EngineError("failed", "a:1"),
    EngineTimeout("slow", "a:1"),
    EngineProtocolError("strange"),
    ConfigurationError("wrong"),
    Unsupported("cannot"),
]


def test_the_tree_is_as_it_is_drawn() -> None:
    for kind, bases in TREE.items():
        assert kind.__bases__ == bases
    drawn = errors.__doc__ or ""
    for kind in TREE:
        assert kind.__name__ in drawn
    assert {kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, LockError)} == {
        LockError,
        *TREE,
    }


def test_every_error_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == {LockError, *TREE}


def test_a_caller_can_tell_busy_from_broken_from_my_bug() -> None:
    busy, broken, bug = (LockHeld, AcquireTimeout), (NoQuorum, EngineError), (ConfigurationError, LeaseClosed)
    assert not any(issubclass(one, ConnectionError) for one in busy + bug)
    assert not any(issubclass(one, (ValueError, RuntimeError)) for one in busy + broken)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_comes_back_from_a_pickle_as_it_was(example: LockError, protocol: int) -> None:
    check_same(pickle.loads(pickle.dumps(example, protocol)), example)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_can_be_copied(example: LockError) -> None:
    check_same(copy.copy(example), example)
    check_same(copy.deepcopy(example), example)


def check_same(back: LockError, example: LockError) -> None:
    assert type(back) is type(example)
    assert str(back) == str(example)
    assert repr(back) == repr(example)
    assert back.args == example.args
    assert back.__dict__.keys() == example.__dict__.keys()
    for name, value in example.__dict__.items():
        other = getattr(back, name)
        if isinstance(value, Tally):
            assert isinstance(other, Tally)
            assert other.describe() == value.describe()
            assert other.answers == value.answers
        else:
            assert other == value


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda error: type(error).__name__)
def test_the_message_is_all_there_is_to_read(example: LockError) -> None:
    assert str(example) == example.args[0]
    assert len(example.args) == 1


def test_a_loss_always_has_a_reason() -> None:
    pickled = pickle.loads(pickle.dumps(LeaseLost("gone", LossReason.TAKEN)))
    assert pickled.reason is LossReason.TAKEN
    with pytest.raises(TypeError):
        LeaseLost("gone")  # type: ignore[call-arg]


def test_the_reasons_for_a_loss_are_a_closed_set() -> None:
    assert [reason.name for reason in LossReason] == [
        "EXPIRED", "TAKEN", "BROKEN", "UNREACHABLE", "SESSION_ENDED", "MAX_HOLD", "OWNER_GONE", "FORKED",
    ]  # fmt: skip


def test_notes_survive_a_pickle() -> None:
    error = NoQuorum("broken")
    error.add_note("while renewing")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while renewing"]
