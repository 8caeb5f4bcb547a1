"""RESP2: our reader and packer against hiredis, whichever way the bytes are cut."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlock.engines.redis import resp
from quorumlock.engines.redis.resp import PlainReader, ProtocolError, Reader, ReplyError, new_reader, pack_plainly

from .examples import examples

BIG = 2**63
lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20).map(str.encode)
ascii_lines = st.text(st.characters(codec="ascii", exclude_characters="\r\n\0"), max_size=20).map(str.encode)
flat = (
    st.integers(-BIG, BIG - 1)
    | st.none()
    | st.binary(max_size=40)
    | st.sampled_from([b"", b"\r\n", b"$5\r\nab", b"*1\r\n", b"\0" * 3])
)
values = st.recursive(flat, lambda inner: st.lists(inner, max_size=5), max_leaves=12)


def encode(value: Any, *, null: bytes = b"$-1\r\n") -> bytes:
    """A reply as a server writes it."""
    if value is None:
        return null
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(encode(item, null=null) for item in value)


def hiredis_reader() -> Reader:
    reader: Reader = hiredis.Reader(protocolError=ProtocolError, replyError=ReplyError)
    return reader


def plain(reply: Any) -> Any:
    """A reply that can be compared: errors become their text."""
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return ("error", str(reply)) if type(reply) is ReplyError else (type(reply).__name__, reply)


def read(reader: Reader, chunks: Iterator[bytes]) -> list[Any]:
    replies = []
    for chunk in chunks:
        reader.feed(chunk)
        while (reply := reader.gets()) is not False:
            replies.append(plain(reply))
    return replies


def cut(data: bytes, at: int) -> Iterator[bytes]:
    return iter([data[:at], data[at:]])


@examples
@given(st.lists(values, min_size=1, max_size=3))
def test_both_readers_give_what_was_sent(sent: list[Any]) -> None:
    data = b"".join(map(encode, sent))
    expected = [plain(value) for value in sent]
    for reader in (PlainReader(), hiredis_reader()):
        assert read(reader, iter([data])) == expected


@examples
@given(values, values)
def test_replies_may_be_cut_at_every_byte(one: Any, two: Any) -> None:
    data = encode(one) + encode(two)
    expected = [plain(one), plain(two)]
    for at in range(len(data) + 1):
        assert read(PlainReader(), cut(data, at)) == expected
    for reader in (PlainReader(), hiredis_reader()):
        assert read(reader, (data[i : i + 1] for i in range(len(data)))) == expected


@examples
@given(st.lists(st.tuples(st.sampled_from([b"+", b"-"]), lines), min_size=1, max_size=4))
def test_status_lines_and_errors_are_read_alike(said: list[tuple[bytes, bytes]]) -> None:
    data = b"".join(mark + text + b"\r\n" for mark, text in said)
    assert read(PlainReader(), iter([data])) == read(hiredis_reader(), iter([data]))


@examples
@given(ascii_lines)
def test_an_error_within_an_array_is_a_value(text: bytes) -> None:
    data = b"*2\r\n-" + text + b"\r\n:1\r\n"
    expected = [[("error", text.decode()), ("int", 1)]]
    for reader in (PlainReader(), hiredis_reader()):
        assert read(reader, iter([data])) == expected


@pytest.mark.parametrize("null", [b"$-1\r\n", b"*-1\r\n"])
def test_both_forms_of_nothing_are_none(null: bytes) -> None:
    for reader in (PlainReader(), hiredis_reader()):
        assert read(reader, iter([encode([None, 1, None], null=null)])) == [
            [("NoneType", None), ("int", 1), ("NoneType", None)]
        ]


@pytest.mark.parametrize(
    "data",
    [b"hello\r\n", b"\r\n", b"?1\r\n", b":x\r\n", b":\r\n", b"$x\r\n", b"*x\r\n", b"$3\r\nabcde\r\n",
     b"*1\r\n!\r\n", b"HTTP/1.1 400 Bad Request\r\n"],
)  # fmt: skip
def test_what_hiredis_calls_a_protocol_error_is_one_for_us_too(data: bytes) -> None:
    for reader in (hiredis_reader(), PlainReader()):
        with pytest.raises(ProtocolError):
            read(reader, iter([data]))


def test_a_line_without_end_is_given_up() -> None:
    reader = PlainReader()
    reader.feed(b"+" + b"x" * 70_000)
    with pytest.raises(ProtocolError):
        reader.gets()


def test_a_protocol_error_is_what_the_runners_catch() -> None:
    assert issubclass(ProtocolError, ValueError)
    assert not issubclass(ReplyError, ValueError), "an error that the server answered is a reply"


arguments = st.binary(max_size=30) | st.text(st.characters(codec="utf-8"), max_size=20) | st.integers(-BIG, BIG - 1)


@examples
@given(st.lists(arguments, min_size=1, max_size=8).map(tuple))
def test_commands_are_packed_as_hiredis_packs_them(args: tuple[str | bytes | int, ...]) -> None:
    packed = pack_plainly(args)
    assert packed == hiredis.pack_command(args)  # type: ignore[arg-type]
    sent = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    assert read(PlainReader(), iter([packed])) == [[("bytes", arg) for arg in sent]]


def test_hiredis_is_used_where_it_is_installed() -> None:
    assert isinstance(new_reader(), hiredis.Reader)
    assert resp.pack is hiredis.pack_command


def test_without_hiredis_the_reader_and_packer_are_our_own() -> None:
    program = (
        "import sys; sys.modules['hiredis'] = None\n"
        "from quorumlock.engines.redis import resp\n"
        "assert resp.new_reader is resp.PlainReader and resp.pack is resp.pack_plainly\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
