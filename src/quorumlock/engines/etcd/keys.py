r"""Where things are kept: what is under a root of its own, for all who use it with the same root.

    <root>lock/<name>\0h            who has it alone: the token. Its create revision is the fence
    <root>lock/<name>\0r<token>     one who shares it
    <root>card/<name>               about whoever has it alone, for people
    <root>last/<name>               its mod revision is the fence of those who share it
    <root>wait/<name>\0w<order>:…   a ticket of one who would have it alone; \0r of one who would share it
    <root>cell/<name>               a small value

A name is put there as it is: keys are bytes. No name holds a NUL, so none can be taken for a part of another's
key; and whether anybody has a lock, alone or not, is whether any key begins with its name and a NUL.
"""

from __future__ import annotations

from .words import after

ORDER_DIGITS = 20


class Keys:
    """The keys of one client: of its root, and its prefix."""

    def __init__(self, root: str, prefix: str) -> None:
        self._root = root.encode()
        self.prefix = prefix.encode()
        self.begins = len(prefix)

    def _of(self, kind: bytes, name: str) -> bytes:
        return self._root + kind + self.prefix + name.encode()

    def lock(self, name: str) -> tuple[bytes, bytes]:
        """The range of all who have it."""
        start = self._of(b"lock/", name) + b"\0"
        return start, after(start)

    def hold(self, name: str) -> bytes:
        return self._of(b"lock/", name) + b"\0h"

    def readers(self, name: str) -> tuple[bytes, bytes]:
        start = self._of(b"lock/", name) + b"\0r"
        return start, after(start)

    def reader(self, name: str, token: str) -> bytes:
        return self.readers(name)[0] + token.encode()

    def card(self, name: str) -> bytes:
        return self._of(b"card/", name)

    def last(self, name: str) -> bytes:
        return self._of(b"last/", name)

    def cell(self, name: str) -> bytes:
        return self._of(b"cell/", name)

    def queue(self, name: str) -> tuple[bytes, bytes]:
        """The range of all tickets."""
        start = self._of(b"wait/", name) + b"\0"
        return start, after(start)

    def before(self, name: str, order_us: int, member: str, kind: bytes) -> tuple[bytes, bytes]:
        """The range of tickets of a kind (w, r) that stand before this one."""
        start = self.queue(name)[0] + kind
        return start, start + _placed(order_us, member)

    def ticket(self, name: str, order_us: int, member: str) -> bytes:
        kind = b"r" if member.endswith("~r") else b"w"
        return self.queue(name)[0] + kind + _placed(order_us, member)

    def locks(self) -> tuple[bytes, bytes]:
        """The range of all locks of this prefix."""
        start = self._root + b"lock/" + self.prefix
        return start, after(start)

    def cards(self) -> bytes:
        return self._root + b"card/"

    def name_of(self, key: bytes) -> str:
        """Whose lock's key it is, behind the prefix."""
        whole = key.removeprefix(self._root + b"lock/").partition(b"\0")[0]
        return whole.decode(errors="replace")[self.begins :]


def _placed(order_us: int, member: str) -> bytes:
    return b"%0*d:" % (ORDER_DIGITS, max(0, order_us)) + member.encode()


def place_of(ticket: bytes) -> bytes:
    """By what tickets of one queue are ordered, whatever their kind."""
    return ticket.rpartition(b"\0")[2][1:]


def member_of(ticket: bytes) -> str:
    return place_of(ticket)[ORDER_DIGITS + 1 :].decode(errors="replace")
