"""Who is owed a reply on a link, beside the calls of rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...core.requests import Leave, Release
from ...core.votes import Answer
from .node import Client
from .resp import ReplyError

if TYPE_CHECKING:
    from .link import Link


WANTS_PASSWORD = "it wants a password, and was given none"


class Entry(Protocol):
    """Somebody who is owed a reply."""

    sent_at: float

    def take(self, link: Link, reply: Any) -> bytes: ...
    def drop(self, link: Link, answer: Answer) -> None: ...


class WhoAmI:
    """The link's own question: as whom does the server know this connection?"""

    __slots__ = ("sent_at",)

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at

    def take(self, link: Link, reply: Any) -> bytes:
        link.node.unanswered = 0
        # Where the ACL forbids CLIENT INFO the reply is an error, and an orphan may live for one ttl.
        if isinstance(reply, bytes):
            link.client = Client.parse(reply)
        elif isinstance(reply, ReplyError) and str(reply).startswith("NOAUTH"):
            link.complaint = WANTS_PASSWORD
        return b""

    def drop(self, link: Link, answer: Answer) -> None:
        """Nobody waits for it."""


class Ignored:
    """Something whose reply does not matter."""

    __slots__ = ("sent_at",)

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at

    def take(self, link: Link, reply: Any) -> bytes:
        return b""

    def drop(self, link: Link, answer: Answer) -> None:
        """Nobody waits for it."""


class Farewell:
    """A release, or that somebody waits no more, said again."""

    __slots__ = ("request", "sent_at")

    def __init__(self, request: Release | Leave, sent_at: float) -> None:
        self.request = request
        self.sent_at = sent_at

    def take(self, link: Link, reply: Any) -> bytes:
        return b""

    def drop(self, link: Link, answer: Answer) -> None:
        link.node.missed(self.request)


class Kill:
    """The end of an old connection to the same node."""

    __slots__ = ("client", "sent_at")

    def __init__(self, client: Client, sent_at: float) -> None:
        self.client = client
        self.sent_at = sent_at

    def take(self, link: Link, reply: Any) -> bytes:
        return b""

    def drop(self, link: Link, answer: Answer) -> None:
        link.node.orphans.append(self.client)
