"""A guard of one file: it is replaced as a whole, by whoever holds the newest fence, or not at all.

    guard = FileGuard("report.json")
    with locks.lock("report") as lease:
        guard.enter(lease)                        # before reading
        guard.write(lease, "{}")                  # StaleFence if a newer holder was seen
        with guard.replace(lease) as file:        # or piece by piece; what fails leaves the old file
            file.write(b"{}")

Beside the file lie `<file>.fence`, the mark, and `<file>.fence.lock`, which is only there to be locked: removing
either forgets the order of holders. New content is written under a name of its own and flushed to the disk; then,
under the lock: check the mark, rename, flush the folder. A mark is on the disk before anything that it admits.

Its limits:

1. Who opens the file without the guard is not seen.
2. `flock` has to work between all writers: it does on local file systems, and on NFS since Linux 2.6.12 if locks
   are not mounted `local_lock=flock`; on SMB, FUSE and container volumes try it first.
3. The lock is held for a check and a rename, never while content is written; but a process that is stopped just
   there (SIGSTOP, a debugger) stops all others until it goes on or ends, or until their `timeout`.
4. A symbolic link is resolved when the guard is made: what it leads to is replaced, the link stays.
5. A hard link to the file keeps the old content. Mode and, where the system allows it, owner of the file are kept;
   access lists and extended attributes are not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import BinaryIO, TypeVar

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from ..errors import ConfigurationError, EngineError, EngineTimeout, StaleFence, Unsupported
from .base import Claim, Fenced, claim, refused

RESOURCE_LONGEST = 1100
"""Characters. A lock's name has up to 1024 bytes, and a semaphore puts `#slot` behind it."""

MARK_LARGEST = 65_536
"""Bytes of the sidecar; more cannot be ours."""

_NAME_LONGEST = 255
_T = TypeVar("_T")


class _Draft:
    """New content under a name of its own.

    It is locked for as long as its writer lives, however that ends: what is not locked is a dead writer's.
    """

    def __init__(self, path: str, mode: int) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.file: BinaryIO = os.fdopen(os.dup(self._fd), "w+b")  # the user's, who may close it
        except BaseException:
            self.discard()
            raise

    def finish(self) -> None:
        """Everything that was written is on the disk."""
        self.file.close()
        os.fsync(self._fd)

    def take_after(self, target: str) -> None:
        """The mode and the owner of what will be replaced."""
        try:
            old = os.stat(target)
        except FileNotFoundError:
            return
        own = os.fstat(self._fd)
        # Only root gives files away; others may give them to a group of theirs, or replace what is their own.
        for now, was, owner in ((own.st_gid, old.st_gid, -1), (own.st_uid, old.st_uid, old.st_uid)):
            if now != was:
                with contextlib.suppress(PermissionError):
                    os.fchown(self._fd, owner, old.st_gid)
        os.fchmod(self._fd, stat.S_IMODE(old.st_mode))

    def discard(self) -> None:
        """Removes the name, if it still has one."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            if hasattr(self, "file"):
                with contextlib.suppress(OSError):  # a full disk was told before; here nothing is kept any more
                    self.file.close()
            os.close(self._fd)
            self._fd = -1


class _Files:
    """The steps that both fronts take, each short but for the disk."""

    def __init__(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> None:
        if fcntl is None:
            raise Unsupported("a guard of files needs flock, which this system does not have")
        given = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if not isinstance(given, str) or not given or "\0" in given:
            raise ConfigurationError(f"path={path!r} is to be the path of a file")
        if timeout is not None and not timeout > 0:
            raise ConfigurationError(f"timeout={timeout!r} is to be None or a number of seconds")
        self._timeout = timeout
        self.path = os.path.realpath(given)
        self._folder, name = os.path.split(self.path)
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise ConfigurationError(f"{self.path} is not a file: a guard replaces files only")
        longest = _NAME_LONGEST - len(f".fence-{secrets.token_hex(8)}.tmp")
        if len(os.fsencode(name)) > longest:
            raise ConfigurationError(
                f"the name {name[:40]!r}… is too long: {longest} bytes, as names are put beside it"
            )
        self._mark = f"{self.path}.fence"
        self._lock = f"{self.path}.fence.lock"
        self._draft_name = re.compile(re.escape(name) + r"\.fence-[0-9a-f]{16}\.tmp")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            fd = _open_to_lock(self._lock, os.O_CREAT)
            try:
                self._take(fd, deadline)
                try:
                    if self._is_the_lock(fd):
                        yield
                        return
                finally:
                    fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would not do, if a child was forked meanwhile
            finally:
                os.close(fd)

    def _take(self, fd: int, deadline: float | None) -> None:
        if deadline is None:
            return fcntl.flock(fd, fcntl.LOCK_EX)
        while True:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise EngineTimeout(f"{self._lock} was locked by others for {self._timeout} s") from None
            time.sleep(0.005)

    def _is_the_lock(self, fd: int) -> bool:
        """Somebody may have removed the file while we waited: then others lock another."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._lock, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _admit(self, resource: str, fence: int) -> None:
        """Under the lock: refuses, or leaves a mark that is on the disk."""
        mark = self._read_mark()
        if mark is not None:
            if mark.resource != resource:
                raise ConfigurationError(
                    f"{self.path} is guarded for {mark.resource!r}, not for {resource!r}: "
                    "fences of two locks have no order"
                )
            if fence < mark.fence:
                message = f"{resource!r} has seen fence {mark.fence}; {fence} is of an earlier holder"
                raise StaleFence(message, fence=fence, seen=mark.fence)
            if fence == mark.fence:
                return
        self._sweep()
        self._write_mark(Claim(resource, fence))

    def _read_mark(self) -> Claim | None:
        try:
            fd = os.open(self._mark, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            regular = stat.S_ISREG(os.fstat(fd).st_mode)  # a pipe would keep us waiting, under the lock
            data = os.read(fd, MARK_LARGEST) if regular else b""
        finally:
            os.close(fd)
        try:
            said = json.loads(data)
            return Claim(said["resource"], said["fence"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:  # ConfigurationError is a ValueError
            raise EngineError(
                f"{self._mark} holds no fence ({error}): nothing is written until it is repaired, or is removed "
                "because no earlier holder can be alive"
            ) from None

    def _write_mark(self, mark: Claim) -> None:
        draft = self._draft()
        try:
            draft.file.write(json.dumps({"resource": mark.resource, "fence": mark.fence}).encode() + b"\n")
            draft.finish()
            draft.take_after(self._mark)
            draft.take_after(self.path)  # who may read the file may read its mark
            os.rename(draft.path, self._mark)
            self._flush_folder()
        finally:
            draft.discard()

    def _draft(self) -> _Draft:
        """Under the lock, so that nobody sweeps away a draft that is not locked yet."""
        # While it is written, nobody reads it who could not read the old one.
        mode = 0o600 if os.path.exists(self.path) else 0o666
        return _Draft(f"{self.path}.fence-{secrets.token_hex(8)}.tmp", mode)

    def _sweep(self) -> None:
        """Removes the drafts of killed writers. Done when a new holder comes: such a death made way for it."""
        with os.scandir(self._folder) as entries:
            drafts = [entry.path for entry in entries if self._draft_name.fullmatch(entry.name)]
        for path in drafts:
            try:
                fd = _open_to_lock(path, os.O_NONBLOCK)
            except OSError:  # another user's, or gone: nobody waits for its room
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            except OSError:  # alive, or not ours to remove
                pass
            finally:
                os.close(fd)

    def _flush_folder(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _admitted(self, lease: Fenced) -> Iterator[None]:
        """Under the lock, unless the lease is refused; who listens is told when it is free again."""
        resource, fence = claim(lease, RESOURCE_LONGEST)
        try:
            with self._locked():
                self._admit(resource, fence)
                yield
        except StaleFence as stale:
            raise refused(lease, stale) from None

    def _enter(self, lease: Fenced) -> None:
        with self._admitted(lease):
            pass

    def _begin(self, lease: Fenced) -> _Draft:
        with self._admitted(lease):
            return self._draft()

    def _commit(self, draft: _Draft, lease: Fenced) -> None:
        draft.finish()
        with self._admitted(lease):
            draft.take_after(self.path)
            os.rename(draft.path, self.path)
            self._flush_folder()

    def _write(self, lease: Fenced, data: bytes | str) -> None:
        content = _content(data)
        draft = self._begin(lease)
        try:
            draft.file.write(content)
            self._commit(draft, lease)
        finally:
            draft.discard()


def _open_to_lock(path: str, more: int) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | more
    try:
        return os.open(path, flags | os.O_RDWR, 0o666)
    except PermissionError:  # another user's; NFS asks for write access to lock it, local file systems do not
        if not os.path.lexists(path):
            raise
        return os.open(path, (flags & ~os.O_CREAT) | os.O_RDONLY)


def _content(data: bytes | str) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return data
    raise ConfigurationError(f"a file holds bytes or text, not {type(data).__name__}")


class FileGuard(_Files):
    """Guards one file; the head of the module says how, and what that is worth.

    `timeout` (seconds) is how long to wait for other writers, who each take as long as the disk does.
    """

    def enter(self, lease: Fenced) -> None:
        """Raises the mark, before its holder reads: earlier holders are refused from now on."""
        self._enter(lease)

    def write(self, lease: Fenced, data: bytes | str) -> None:
        """Replaces the content; text is written as UTF-8."""
        self._write(lease, data)

    @contextlib.contextmanager
    def replace(self, lease: Fenced) -> Iterator[BinaryIO]:
        """Replaces the content by what the block writes, if it succeeds and no newer holder came meanwhile.

        The mark is raised before the block, and checked again after it.
        """
        draft = self._begin(lease)
        try:
            yield draft.file
            self._commit(draft, lease)
        finally:
            draft.discard()


class AsyncFileGuard(_Files):
    """Guards one file, in a thread; the head of the module says how, and what that is worth.

    `timeout` (seconds) is how long to wait for other writers, who each take as long as the disk does.

    Whoever is cancelled waits until the step that runs in the thread has ended: nothing is written behind its back.
    """

    async def enter(self, lease: Fenced) -> None:
        """Raises the mark, before its holder reads: earlier holders are refused from now on."""
        await _in_thread(lambda: self._enter(lease))

    async def write(self, lease: Fenced, data: bytes | str) -> None:
        """Replaces the content; text is written as UTF-8."""
        await _in_thread(lambda: self._write(lease, data))

    @contextlib.asynccontextmanager
    async def replace(self, lease: Fenced) -> AsyncIterator[BinaryIO]:
        """Replaces the content by what the block writes, if it succeeds and no newer holder came meanwhile.

        The mark is raised before the block, and checked again after it.
        """
        begun: list[_Draft] = []
        try:
            await _in_thread(lambda: begun.append(self._begin(lease)))
            yield begun[0].file
            await _in_thread(lambda: self._commit(begun[0], lease))
        finally:
            for draft in begun:
                draft.discard()


async def _in_thread(step: Callable[[], _T]) -> _T:
    import asyncio  # not for those who only use threads

    running = asyncio.ensure_future(asyncio.to_thread(step))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # looked at: the cancellation is what is told
        raise cancelled
    return running.result()
