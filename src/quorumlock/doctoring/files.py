"""The same for locks in a SQLite file: is it there, on a disk of this machine, and nobody else's?"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.states import READY, NodeState
from .findings import ERROR, WARNING, Check, Trouble

NETWORKED = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "drvfs", "fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
        "fuse.sshfs", "fuse.vmhgfs-fuse", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "smb",
        "smb2", "smb3", "smbfs", "vboxsf", "virtiofs",
    }
)  # fmt: skip
"""File systems that several machines share, or whose locks and shared memory are not this kernel's."""
LITTLE = 50_000_000


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file."""

    state: NodeState
    path: str
    filesystem: str | None
    mode: int | None
    folder_mode: int | None
    free: int | None
    """Bytes that the disk has left."""
    wal: bool | None
    """Did it have a write-ahead log when the doctor came? None: there was no file, or an empty one."""


def gather(path: str, look: Callable[[], NodeState]) -> FileFacts:
    folder, wal = os.path.dirname(path), _wal(path)  # before anybody opens it, and sees to its log
    return FileFacts(
        look(),
        path,
        filesystem(path, _mounts()),
        _mode(path),
        _mode(folder),
        shutil.disk_usage(folder).free if os.path.isdir(folder) else None,
        wal,
    )


def _mode(path: str) -> int | None:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def _wal(path: str) -> bool | None:
    """The header says it: the write and the read version are 2."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return None
    return head[18:20] == b"\2\2" if len(head) == 20 else None


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(errors="replace")
    except OSError:
        return ""  # another system than Linux: nobody knows


def filesystem(path: str, mounts: str) -> str | None:
    """The kind of the file system that a path is on; of several mounts the innermost, and there the last."""
    found, depth = None, -1
    real = os.path.realpath(path)
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = words[1].encode().decode("unicode_escape")  # a space is written \040
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= depth:
            found, depth = words[2], len(point)
    return found


def usable(file: FileFacts) -> Iterator[Trouble]:
    if file.state.state != READY:
        yield Trouble(
            ERROR, file.state.node, f"cannot be used: {file.state.detail}", "correct the URL, or the file"
        )


def local(file: FileFacts) -> Iterator[Trouble]:
    if file.filesystem in NETWORKED:
        yield Trouble(
            ERROR,
            file.state.node,
            f"is on a file system of the kind {file.filesystem}: SQLite's write-ahead log needs memory that all "
            "its users share, and other machines do not",
            "put it on a local disk; for several machines use Redis or Valkey",
        )


def log(file: FileFacts) -> Iterator[Trouble]:
    if file.wal is False and file.state.state == READY:
        yield Trouble(
            WARNING,
            file.state.node,
            "had no write-ahead log until just now: somebody else has set its journal_mode",
            "let nobody but quorumlock open it; it is mended, as it is whenever a program begins to use it",
        )


def space(file: FileFacts) -> Iterator[Trouble]:
    if file.free is not None and file.free < LITTLE:
        yield Trouble(
            WARNING,
            file.state.node,
            f"is on a disk with {file.free / 1_000_000:.1f} MB left: on a full disk no lock is granted",
            "free some space",
        )


def private(file: FileFacts) -> Iterator[Trouble]:
    if file.mode is None or file.folder_mode is None:
        return
    others = stat.S_IWOTH if file.folder_mode & stat.S_IXOTH else 0
    if file.mode & others or (file.folder_mode & stat.S_IWOTH and not file.folder_mode & stat.S_ISVTX):
        yield Trouble(
            WARNING,
            file.state.node,
            "can be written by every user of this machine: whoever writes it can do anything to your locks",
            f"chmod o-w {file.path}, and its folder",
        )


CHECKS = (
    Check("file", usable, "the file answers"),
    Check(
        "file system",
        local,
        "it is on a disk of this machine, as far as can be told",
        lambda file: [file.folder_mode is not None],
    ),
    Check("write-ahead log", log, "it has a write-ahead log", lambda file: [file.state.state == READY]),
    Check("space", space, "there is room on its disk", lambda file: [file.free is not None]),
    Check("access", private, "not everybody may write it", lambda file: [file.mode is not None]),
)
