"""Bad parameters: refused by name, with the value and what is allowed, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quorumlock
from quorumlock import ConfigurationError, Jitter, options
from quorumlock.options import LockOptions, Settings

from .examples import examples

NOWHERE = "redis://192.0.2.1:1"
"""An address that is reserved for documentation: nobody is there."""

NAN, INF = float("nan"), float("inf")
NO_NUMBERS = [True, False, "1", b"1", None, [1], 1 + 0j]


def settings(**changes: Any) -> Settings:
    chosen: dict[str, Any] = {
        "prefix": "", "node_timeout": 0.05, "drift": 0.01, "max_ttl": 60.0, "quarantine": None, "durable": False,
        "fence_ttl": 86400.0, "identify": True, "retry": Jitter(0.2), "patience": 5.0, "group": None, "fleet": None,
    }  # fmt: skip
    return Settings(**chosen | changes)


def refused(call: Callable[[], object], parameter: str, value: object, *allowed: str) -> str:
    """The message, which names the parameter, the value and the range."""
    with pytest.raises(ConfigurationError) as raised:
        call()
    text = str(raised.value)
    assert isinstance(raised.value, ValueError)
    assert text.startswith(f"{parameter}="), text
    shown = repr(value)
    assert (shown if len(shown) <= 60 else shown[:30]) in text
    for part in allowed:
        assert part in text, f"{part!r} is not in {text!r}"
    assert len(text) < 400
    assert "\n" not in text
    assert "\0" not in text
    return text


@pytest.fixture(params=[quorumlock.connect, quorumlock.connect_async], ids=["threads", "asyncio"])
def locker(request: pytest.FixtureRequest) -> Any:
    return request.param(NOWHERE)


@pytest.mark.parametrize("ttl", [0, 0.0, -1, -0.001, NAN, INF, -INF, 0.0009, 0.00999, 60.001, 1e308, 10**12])
def test_a_ttl_out_of_range_is_refused(locker: Any, ttl: float) -> None:
    refused(lambda: locker.lock("job", ttl=ttl), "ttl", ttl, "0.01", "60")


@pytest.mark.parametrize("ttl", NO_NUMBERS)
def test_a_ttl_that_is_no_number_is_refused(locker: Any, ttl: Any) -> None:
    refused(lambda: locker.lock("job", ttl=ttl), "ttl", ttl, "number", "0.01", "60")


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_ttl_beyond_all_floats_is_refused_like_any_other(locker: Any, digits: int) -> None:
    """math.isfinite cannot take such an integer, and repr refuses to write it down."""
    with pytest.raises(ConfigurationError, match=r"^ttl="):
        locker.lock("job", ttl=10**digits)


def test_the_range_of_a_ttl_ends_at_the_fleets_max_ttl() -> None:
    locker = quorumlock.connect(NOWHERE, max_ttl=5.0)
    refused(lambda: locker.lock("job", ttl=5.001), "ttl", 5.001, "0.01 and 5")
    assert locker.lock("job", ttl=5).name == "job"


@pytest.mark.parametrize("ttl", [0.01, 1, 10, 59.999, 60.0])
def test_a_ttl_within_the_range_is_accepted(locker: Any, ttl: float) -> None:
    assert f"ttl={ttl:g}" in repr(locker.lock("job", ttl=ttl))


@pytest.mark.parametrize("timeout", [-1, -0.001, NAN, INF, 1e9, True, "5"])
def test_a_timeout_that_makes_no_sense_is_refused(locker: Any, timeout: Any) -> None:
    refused(lambda: locker.lock("job", timeout=timeout), "timeout", timeout, "0")


@pytest.mark.parametrize("timeout", [-1, NAN, "5"])
def test_a_timeout_given_to_acquire_is_checked_too(timeout: Any) -> None:
    lock = quorumlock.connect(NOWHERE).lock("job")
    refused(lambda: lock.acquire(timeout=timeout), "timeout", timeout, "0")


@pytest.mark.parametrize("max_hold", [0, -1, NAN, INF, True, "1"])
def test_a_max_hold_that_makes_no_sense_is_refused(locker: Any, max_hold: Any) -> None:
    refused(lambda: locker.lock("job", max_hold=max_hold), "max_hold", max_hold, "0.01")


@pytest.mark.parametrize("parameter", ["keep", "reentrant", "fair"])
@pytest.mark.parametrize("value", [0, 1, "yes", None])
def test_a_switch_is_true_or_false(locker: Any, parameter: str, value: Any) -> None:
    refused(lambda: locker.lock("job", **{parameter: value}), parameter, value, "True or False")


@pytest.mark.parametrize("parameter", ["lock_delay", "at_least"])
@pytest.mark.parametrize("value", [-1, NAN, INF, True, "1", 61])
def test_a_delay_that_makes_no_sense_is_refused(locker: Any, parameter: str, value: Any) -> None:
    refused(lambda: locker.lock("job", **{parameter: value}), parameter, value, "0", "60")


def test_a_lock_may_be_closed_for_no_longer_than_max_ttl(locker: Any) -> None:
    locker.lock("a", ttl=50, lock_delay=10)
    with pytest.raises(ConfigurationError, match=r"^ttl=50 and lock_delay=11 are more than max_ttl=60 together"):
        locker.lock("a", ttl=50, lock_delay=11)


@pytest.mark.parametrize("on_lost", [1, "print", object()])
def test_a_callback_must_be_callable(locker: Any, on_lost: Any) -> None:
    refused(lambda: locker.lock("job", on_lost=on_lost), "on_lost", on_lost, "callable")


@pytest.mark.parametrize("note", ["", b"x", 1, "a\nb", "\0"])
def test_a_note_is_a_line_of_text(locker: Any, note: Any) -> None:
    refused(lambda: locker.lock("job", note=note), "note", note)


@pytest.mark.parametrize("force", [0, 1, None, "yes"])
def test_force_is_true_or_false(force: Any) -> None:
    locker = quorumlock.connect(NOWHERE)
    refused(lambda: locker.init_fleet(force=force), "force", force, "True or False")


CONNECT: list[tuple[str, list[object], list[str]]] = [
    ("node_timeout", [0, -1, 0.0001, 61, NAN, INF, True, "1", None], ["0.001", "60"]),
    ("drift", [-0.01, 0.21, 1, NAN, INF, True, "0", None], ["0", "0.2"]),
    ("max_ttl", [0, -1, 0.001, 86_401, NAN, INF, True, "60", None], ["0.01", "86400"]),
    ("fence_ttl", [0, 239.9, 1e9, NAN, INF, True, "1", None], ["240"]),
    ("patience", [-1, NAN, INF, 1e9, True, "5", None], ["0"]),
    ("quarantine", [0, 1, "on"], ["True or False"]),
    ("durable", [0, 1, None, "always"], ["True or False"]),
    ("identify", [0, 1, None, "me"], ["True or False"]),
    ("retry", [0.2, None, "Jitter", 3], ["Jitter(0.2)", "Limit(Jitter(0.2), 3)"]),
    ("prefix", [b"x", None, 1, "a{b}", "a*", "a?", "a[b", "a\\", "a\n", "\0", "\ud800", "x" * 1025], []),
    ("group", ["", b"x", 1, "a\nb", "\ud800"], []),
    ("fleet", ["", b"x", 1, "a\nb", "\ud800"], []),
]


@pytest.mark.parametrize("connect", [quorumlock.connect, quorumlock.connect_async], ids=["threads", "asyncio"])
@pytest.mark.parametrize(
    ("parameter", "value", "allowed"), [(name, bad, allowed) for name, values, allowed in CONNECT for bad in values]
)
def test_connect_refuses_what_makes_no_sense(
    connect: Callable[..., object], parameter: str, value: object, allowed: list[str]
) -> None:
    refused(lambda: connect(NOWHERE, **{parameter: value}), parameter, value, *allowed)


def test_a_prefix_does_not_begin_with_the_librarys_own_namespace() -> None:
    text = refused(lambda: quorumlock.connect(NOWHERE, prefix="ql:"), "prefix", "ql:")
    assert "library's own" in text


def test_fences_outlive_four_times_the_longest_ttl() -> None:
    assert quorumlock.connect(NOWHERE, max_ttl=10, fence_ttl=40)
    refused(lambda: quorumlock.connect(NOWHERE, max_ttl=10, fence_ttl=39.9), "fence_ttl", 39.9, "40")


def test_the_defaults_are_accepted() -> None:
    LockOptions.checked(
        settings(), ttl=10.0, timeout=None, keep=True, max_hold=86400.0, reentrant=False, fair=False,
        lock_delay=0.0, at_least=0.0, note=None, on_lost=None,
    )  # fmt: skip


ANYTHING = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text() | st.binary()
    | st.lists(st.integers()) | st.complex_numbers()
)  # fmt: skip


@examples
@given(ANYTHING)
def test_a_number_is_accepted_within_its_range_or_refused_by_name(value: Any) -> None:
    fits = type(value) in (int, float) and 1 <= value <= 5
    if fits:
        assert options.real("speed", value, 1, 5) == value
    else:
        refused(lambda: options.real("speed", value, 1, 5), "speed", value, "1", "5")


@examples
@given(ANYTHING)
def test_an_integer_is_accepted_within_its_range_or_refused_by_name(value: Any) -> None:
    if type(value) is int and 1 <= value <= 5:
        assert options.whole("gear", value, 1, 5) == value
    else:
        refused(lambda: options.whole("gear", value, 1, 5), "gear", value, "1", "5")


@examples
@given(ANYTHING, ANYTHING, ANYTHING)
def test_whatever_a_lock_is_given_the_answer_is_a_lock_or_an_error_of_ours(
    ttl: Any, timeout: Any, name: Any
) -> None:
    locker = quorumlock.connect(NOWHERE)
    try:
        lock = locker.lock(name, ttl=ttl, timeout=timeout)
    except ConfigurationError:
        return
    assert lock.name == name
