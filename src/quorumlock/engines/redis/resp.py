"""RESP2, the wire format: hiredis where it is installed, and a small reader of our own where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class ReplyError(Exception):
    """An error that the server answered."""


class ProtocolError(ValueError):
    """Bytes that are not RESP."""


class Reader(Protocol):
    """Fed with bytes, gives one reply after the other; False when it needs more."""

    def feed(self, data: bytes) -> object: ...
    def gets(self) -> Any: ...


def pack_plainly(args: tuple[str | bytes | int, ...]) -> bytes:
    """A command as an array of bulk strings."""
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        data = arg if isinstance(arg, bytes) else str(arg).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class PlainReader:
    """The parts of RESP2 that Redis and Valkey use, parsed as they come in."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def gets(self) -> Any:
        parsed = self._parse(0)
        if parsed is None:
            return False
        value, end = parsed
        del self._data[:end]
        return value

    def _parse(self, start: int) -> tuple[Any, int] | None:
        """The value at `start` and where it ends; None if it is not all there."""
        line_end = self._data.find(b"\r\n", start)
        if line_end < 0:
            if len(self._data) - start > 65536:
                raise ProtocolError("a line without end")
            return None
        line = bytes(self._data[start:line_end])
        kind, rest, end = line[:1], line[1:], line_end + 2
        if kind == b"+":
            return rest, end
        if kind == b"-":
            return ReplyError(rest.decode("utf-8", "replace")), end
        if kind not in (b":", b"$", b"*"):
            raise ProtocolError(f"unexpected byte {kind!r}")
        try:
            number = int(rest)
        except ValueError:
            raise ProtocolError(f"not a number: {rest[:20]!r}") from None
        if kind == b":":
            return number, end
        if number < 0:
            return None, end
        return self._bulk(number, end) if kind == b"$" else self._array(number, end)

    def _bulk(self, size: int, start: int) -> tuple[bytes, int] | None:
        end = start + size
        if len(self._data) < end + 2:
            return None
        return bytes(self._data[start:end]), end + 2

    def _array(self, size: int, end: int) -> tuple[list[Any], int] | None:
        items = []
        for _ in range(size):
            item = self._parse(end)
            if item is None:
                return None
            value, end = item
            items.append(value)
        return items, end


pack: Callable[[tuple[str | bytes | int, ...]], bytes]
new_reader: Callable[[], Reader]

try:
    import hiredis
except ImportError:
    pack, new_reader = pack_plainly, PlainReader
else:
    pack = hiredis.pack_command  # type: ignore[assignment]  # its stub says a tuple of exactly one

    def new_reader() -> Reader:
        return hiredis.Reader(protocolError=ProtocolError, replyError=ReplyError)
