"""What kazoo and ZooKeeper complain of, as votes and errors that say which hosts and what to do."""

from __future__ import annotations

from kazoo.exceptions import (  # type: ignore[import-untyped]
    AuthFailedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    SessionExpiredError,
)

from ...core.votes import Answer, Cause, unknown
from .session import Session

DENIED = (
    "its ACL does not allow this user to create, write and delete below the path; correct the user in the URL, or "
    "have the ACL of the path changed"
)


class Late(Exception):
    """No answer in time."""


STOPPED = "its client was stopped, or is closed"


def told(error: Exception, session: Session, wrote: bool, seconds: float) -> Answer:
    """The vote of a server that could not be heard. Nothing was executed unless something was written."""
    if isinstance(error, Late) and not session.stopped:
        return _late(session, wrote, seconds)
    if isinstance(error, NoAuthError):
        return unknown(Cause.DENIED, DENIED)
    if isinstance(error, (AuthFailedError, InvalidACLError)) or session.denied:
        return unknown(Cause.DENIED, "it does not accept this user; correct the user and the password in the URL")
    if session.stopped:
        return unknown(Cause.DISCONNECTED if wrote else Cause.UNREACHABLE, STOPPED)
    if isinstance(error, SessionExpiredError):
        return unknown(Cause.DISCONNECTED if wrote else Cause.UNREACHABLE, "the session is over")
    if isinstance(error, ConnectionLoss):
        why = session.complaints() or "the connection was lost"
        return unknown(Cause.DISCONNECTED if wrote else Cause.UNREACHABLE, why)
    if isinstance(error, KazooException):
        return unknown(Cause.FAILED, f"{type(error).__name__} {error}".strip())
    raise error


def _late(session: Session, wrote: bool, seconds: float) -> Answer:
    if session.denied:
        return unknown(Cause.DENIED, "it does not accept this user; correct the user and the password in the URL")
    if not session.connected:
        why = session.complaints() or f"no server of the ensemble has accepted a session within {seconds:.3g} s"
        return unknown(Cause.SILENT if wrote else Cause.UNREACHABLE, why)
    return unknown(Cause.SILENT, f"no answer within {seconds:.3g} s")
