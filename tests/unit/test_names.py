"""Names of locks: what is safe as a part of a key, and what is refused."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quorumlock
from quorumlock import ConfigurationError
from quorumlock.options import NAME_BYTES, name

from .examples import examples
from .test_options import NOWHERE, refused


@pytest.fixture(params=[quorumlock.connect, quorumlock.connect_async], ids=["threads", "asyncio"])
def locker(request: pytest.FixtureRequest) -> Any:
    return request.param(NOWHERE)


GOOD = [
    "a",
    "orders:42",
    "with space",
    "ümläut",
    "日本語",
    "a/b",
    "a.b-c_d",
    "x" * NAME_BYTES,
    "ql",
    "xql:node",
    "QL:x",
    "😀",
]


@pytest.mark.parametrize("good", GOOD, ids=lambda text: text[:12])
def test_an_ordinary_name_is_taken_as_it_is(locker: Any, good: str) -> None:
    assert locker.lock(good).name == good


@pytest.mark.parametrize("bad", [b"bytes", b"", None, 42, 1.5, ["a"], ("a",), object])
def test_a_name_that_is_no_text_is_refused(locker: Any, bad: Any) -> None:
    refused(lambda: locker.lock(bad), "name", bad, "str", type(bad).__name__)


def test_an_empty_name_is_refused(locker: Any) -> None:
    refused(lambda: locker.lock(""), "name", "", "empty", "1 to 1024 bytes")


@pytest.mark.parametrize("bad", ["x" * 1025, "ü" * 513, "😀" * 257, "x" * 10_000_000], ids=len)
def test_a_huge_name_is_refused_and_not_repeated_in_full(locker: Any, bad: str) -> None:
    text = refused(lambda: locker.lock(bad), "name", bad, "1024 bytes", str(len(bad.encode())))
    assert len(text) < 200


@pytest.mark.parametrize("bad", ["{", "}", "{tag}name", "a*", "a?", "a[b", "a]b", "a\\b", "*"])
def test_braces_and_patterns_are_refused(locker: Any, bad: str) -> None:
    text = refused(lambda: locker.lock(bad), "name", bad, "not allowed")
    assert any(character in text for character in bad)


@pytest.mark.parametrize(
    "bad", ["a\nb", "a\rb", "\0", "a\0", "\t", "\x7f", "\x85", "\u2028", "\u2029", "a\x1b[31m", "\uffff"]
)
def test_control_characters_line_breaks_and_nul_are_refused_and_not_repeated(locker: Any, bad: str) -> None:
    text = refused(lambda: locker.lock(bad), "name", bad, "not allowed")
    assert text.isprintable()


@pytest.mark.parametrize("bad", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_is_refused(locker: Any, bad: str) -> None:
    refused(lambda: locker.lock(bad), "name", bad, "surrogate")


@pytest.mark.parametrize("bad", ["ql:", "ql:node", "ql:fence:x", "ql:wake:1"])
def test_the_librarys_own_namespace_is_refused(locker: Any, bad: str) -> None:
    refused(lambda: locker.lock(bad), "name", bad, "'ql:'")


@pytest.mark.parametrize("bad", ["", "a\nb", "ql:node", b"x", "{x}"])
def test_a_name_that_is_to_be_broken_is_checked_too(bad: Any) -> None:
    refused(lambda: quorumlock.connect(NOWHERE).break_(bad), "name", bad)


@examples
@given(st.text())
def test_every_name_that_is_accepted_is_safe_in_a_key(text: str) -> None:
    try:
        accepted = name(text)
    except ConfigurationError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert refusal.startswith("name=")
        assert refusal.isprintable()
        return
    assert accepted == text
    assert 1 <= len(accepted.encode()) <= NAME_BYTES
    assert not set(accepted) & set("{}*?[]\\")
    assert not any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in accepted)
    assert not accepted.startswith("ql:")
