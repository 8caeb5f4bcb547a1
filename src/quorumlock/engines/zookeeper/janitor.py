"""Ends leases that nobody has renewed in time, and takes away what could not be taken away before.

The server knows nothing of a ttl. So each process has a thread that deletes, when its time is over, what the
process itself has made. Where it cannot (no connection, a stopped process), the end of the session does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError  # type: ignore[import-untyped]

from ...clocks import boot_time
from .session import Lease, Session

AGAIN = 0.2
IDLE = 60.0


class Janitor:
    """One thread for one session; begun when there is something to do."""

    def __init__(self, session: Session, leave: Callable[[str, str], None]) -> None:
        self._session = session
        self._leave = leave
        """Takes somebody out of a queue, and raises KazooException or TimeoutError."""
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        with self._session.mutex:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="quorumlock-zookeeper", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """The client goes when nothing is left that has time: a lease may outlive its locker, but not its ttl."""
        session = self._session
        with session.mutex:
            session.closing = True
            session.changed.notify_all()
            if session.client is None:
                session.closed.set()
                return
            self.begin()

    def _run(self) -> None:
        session = self._session
        while True:
            with session.mutex:
                due = self._due()
                if not due:
                    if session.closing and not self._has_time_left():
                        break
                    if not (session.owed and session.connected):
                        session.changed.wait(self._pause())
                owed = list(session.owed) if session.connected else []
            for lease in due:
                self._delete(lease)
            for queue, member in owed:
                self._take_out(queue, member)
        session.end()

    def _due(self) -> list[Lease]:
        """Those whose time is over."""
        session, now = self._session, boot_time()
        return [one for one in session.leases.values() if one.ends_at <= now] if session.connected else []

    def _has_time_left(self) -> bool:
        """Is there a lease that its holder may still count on? What else there is goes with the session."""
        now = boot_time()
        return any(not one.over and one.ends_at > now for one in self._session.leases.values())

    def _pause(self) -> float:
        session = self._session
        if not session.connected and session.leases:
            return AGAIN
        ends = min((lease.ends_at for lease in session.leases.values()), default=None)
        return IDLE if ends is None else max(0.0, min(IDLE, ends - boot_time()))

    def _delete(self, lease: Lease) -> None:
        session = self._session
        with session.mutex:
            if lease.ends_at > boot_time():
                return  # renewed at the last moment
            lease.over = True
            lease.ends_at = boot_time() + AGAIN  # if there is no answer until then
            client = session.client
        if client is None:
            return

        def done(result: Any) -> None:
            if result.exception is None or isinstance(result.exception, NoNodeError):
                session.drop(lease)
                with session.mutex:
                    session.changed.notify_all()

        client.delete_async(lease.path).rawlink(done)

    def _take_out(self, queue: str, member: str) -> None:
        try:
            self._leave(queue, member)
        except (KazooException, TimeoutError):
            self._session.closed.wait(AGAIN)  # again, later
        else:
            self._session.owed.discard((queue, member))
