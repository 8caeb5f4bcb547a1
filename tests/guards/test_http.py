"""The header that carries a fence: how it is written, read, and put on requests."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlock import ConfigurationError
from quorumlock.guards import MAX_FENCE, Claim, FencingAuth, fencing_headers
from quorumlock.guards.http import HEADER, parse_fencing_token

from .fronts import example


@pytest.mark.parametrize(
    ("resource", "written"),
    [
        ("report", "report;7"),
        ("orders:42", "orders:42;7"),
        ("pool#3", "pool#3;7"),
        ("a/b.c-d_e~f", "a/b.c-d_e~f;7"),
        ("a;b", "a%3Bb;7"),
        ("100%", "100%25;7"),
        ("a, b", "a%2C%20b;7"),
        ('say "x"\\', "say%20%22x%22%5C;7"),
        ("größe", "gr%C3%B6%C3%9Fe;7"),
        ("\r\nX-Evil: 1", "%0D%0AX-Evil:%201;7"),
        ("\x00\x7f", "%00%7F;7"),
        ("😀", "%F0%9F%98%80;7"),
    ],
)
def test_a_resource_is_written_so_that_a_header_can_carry_it(resource: str, written: str) -> None:
    assert fencing_headers(Claim(resource, 7)) == {"Fencing-Token": written}
    assert parse_fencing_token(written) == Claim(resource, 7)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(names, st.integers(1, MAX_FENCE))
def test_whatever_is_written_is_read_again(resource: str, fence: int) -> None:
    value = fencing_headers(Claim(resource, fence))[HEADER]
    assert re.fullmatch(r"[!-~]+", value)
    assert not {'"', ",", "\\"} & set(value)
    assert value.count(";") == 1
    assert parse_fencing_token(value) == Claim(resource, fence)


@given(st.text(max_size=40) | st.from_regex(r"[a-z%;]{0,5};[0-9+-]{0,18}"))
def test_whatever_is_read_was_meant_or_is_refused(value: str) -> None:
    try:
        read = parse_fencing_token(value)
    except ConfigurationError:
        return
    assert parse_fencing_token(fencing_headers(read)[HEADER]) == read


@pytest.mark.parametrize(
    "value",
    [
        "",
        ";",
        "report",
        "report;",
        ";7",
        "report;0",
        "report;-7",
        "report;+7",
        "report;07",
        "report;7.0",
        "report;7e3",
        "report;0x7",
        "report;\u0667",
        "report;7;8",
        "a;b;7",
        "report; 7",
        " report;7",
        "report;7 ",
        "report;7\n",
        "report;7, report;8",
        '"report";7',
        "re port;7",
        "größe;7",
        "100%;7",
        "100%2;7",
        "100%zz;7",
        "%ff;7",
        "%ed%a0%80;7",
        f"report;{MAX_FENCE + 1}",
        "report;99999999999999999",
        "x" * 1101 + ";7",
        "x" * 5000 + ";7",
    ],
)
def test_what_is_malformed_is_not_guessed_at(value: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_fencing_token(value)


def test_the_largest_fence_is_carried() -> None:
    assert parse_fencing_token(f"report;{MAX_FENCE}") == Claim("report", MAX_FENCE)


@pytest.mark.parametrize(
    ("resource", "told"),
    [("x" * 1101, "this guard stores 1100"), ("😀" * 500, "6002 characters in a header"), ("\ud800", "UTF-8")],
)
def test_a_resource_that_no_header_carries_is_told(resource: str, told: str) -> None:
    for use in (fencing_headers, FencingAuth):
        with pytest.raises(ConfigurationError, match=told):
            use(SimpleNamespace(resource=resource, fence=7))


def answered(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=request.headers.get_list("Fencing-Token"))


def test_httpx_sends_it_for_threads() -> None:
    with httpx.Client(transport=httpx.MockTransport(answered), auth=FencingAuth(Claim("a b", 7))) as client:
        assert client.put("http://service/").json() == ["a%20b;7"]
        assert client.put("http://service/", headers={"fencing-token": "mine;1"}).json() == ["a%20b;7"]
        assert client.put("http://service/", auth=FencingAuth(Claim("c", 8))).json() == ["c;8"]


async def asked() -> list[str]:
    transport = httpx.MockTransport(answered)
    async with httpx.AsyncClient(transport=transport, auth=FencingAuth(Claim("a b", 7))) as client:
        answer: list[str] = (await client.put("http://service/")).json()
        return answer


def test_httpx_sends_it_for_asyncio() -> None:
    assert asyncio.run(asked()) == ["a%20b;7"]


def test_requests_way_of_calling_is_the_same() -> None:
    request: Any = SimpleNamespace(headers={})
    assert FencingAuth(Claim("report", 7))(request) is request
    assert request.headers == {"Fencing-Token": "report;7"}


def test_the_example_runs() -> None:
    told = example("guard_http.py")
    assert "412" in told
    assert "428" in told
