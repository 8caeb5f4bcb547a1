"""`quorumlock run`: holds a lock while a command runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .job import ON_LOST, PASSED_ON, Job
from .leash import Leash
from .output import (
    EX_CANNOT_RUN,
    EX_HELD,
    EX_LOST,
    EX_NOT_FOUND,
    EX_OK,
    EX_USAGE,
    complain,
    in_words,
    say,
    tell,
)
from .parsing import add_fleet_options, add_verbose, seconds, slots, whole

if TYPE_CHECKING:
    from quorumlock import Lease, Locker

TTL = 30.0
USAGE = "quorumlock run NAME [options] -- COMMAND [ARGUMENT ...]\n       quorumlock run NAME [options] -c TEXT"

EPILOG = """\
The command gets QUORUMLOCK_NAME, QUORUMLOCK_RESOURCE, QUORUMLOCK_FENCE and
QUORUMLOCK_REMAINING (seconds). If the lock is about to be lost, its whole
process group is asked to end and then killed, before anybody else can have the
lock; also if quorumlock itself is killed. Out of reach is only a process that
made a session of its own (setsid).

examples:
  quorumlock run report -- ./report.sh             wait for the lock, then run
  quorumlock run report -n --skip-ok -- ./report.sh   in cron: once is enough
  quorumlock run deploy -w 60 -c 'make build && make deploy'
  quorumlock run encoder --slots 4 -- ffmpeg -i in.mov out.mp4

exit codes: those of the command; 128 + N if signal N ended it
  64  a mistake in the call         69  no majority of nodes answers
  75  held by somebody else (-E)    76  the lock was lost while it ran
  126 it cannot be run              127 there is no such command
  128 + N: ended by signal N while it waited for the lock
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.epilog = USAGE, EPILOG
    parser.add_argument("name", metavar="NAME", help="of the lock")
    parser.set_defaults(command=[], elects=False)
    parser.add_argument("-c", dest="shell", metavar="TEXT", help="run this with sh -c")

    waiting = parser.add_argument_group("waiting (default: as long as it takes)")
    until = waiting.add_mutually_exclusive_group()
    until.add_argument("-n", "--no-wait", action="store_true", help="give up at once if it is held")
    until.add_argument("-w", "--timeout", type=seconds, metavar="S", help="give up after so many seconds")
    waiting.add_argument(
        "-E",
        "--conflict-exit-code",
        type=whole(0, 255),
        default=EX_HELD,
        metavar="N",
        help="when it is held (default: 75)",
    )
    waiting.add_argument("--skip-ok", action="store_true", help="held is fine: exit with 0")
    waiting.add_argument("--fair", action="store_true", help="never overtake who came before")

    lock = parser.add_argument_group("the lock")
    lock.add_argument("-s", "--shared", action="store_true", help="share it with others who say --shared")
    lock.add_argument("--slots", type=slots, metavar="N", help="let N have it at a time")
    lock.add_argument(
        "--ttl",
        type=seconds,
        metavar="S",
        help="it is renewed while the command runs, and outlives a machine that dies by so much (default: 30, or "
        "what the engine allows)",
    )
    lock.add_argument(
        "--max-hold",
        type=seconds,
        metavar="S",
        help="not to be renewed after that (default: a day)",
    )
    lock.add_argument(
        "--at-least",
        type=seconds,
        default=0.0,
        metavar="S",
        help="keep it closed for so long, also if the command ends earlier",
    )
    lock.add_argument("--note", metavar="TEXT", help="shown to whoever asks who holds it")

    add_losing_options(parser)
    add_fleet_options(parser)


def add_losing_options(parser: argparse.ArgumentParser) -> None:
    """What becomes of the command, and what is told of it."""
    losing = parser.add_argument_group("when it is about to be lost")
    losing.add_argument(
        "--on-lost", choices=ON_LOST, default="term", help="ask the command to end, then kill it (default); or what"
    )
    losing.add_argument(
        "--kill-after",
        type=seconds,
        metavar="S",
        help="how long it may take to end (default: a quarter of the ttl)",
    )

    parser.add_argument("--json", action="store_true", help="tell at the end what happened, as JSON on stderr")
    add_verbose(parser, "tell on stderr; ")


def run(arguments: argparse.Namespace) -> int:
    """With --json one line tells at the end what came of it, also if nothing was run."""
    told: dict[str, Any] = {"name": arguments.name}
    told |= dict.fromkeys(("resource", "fence", "waited", "held", "exit_code", "lost", "error"))
    try:
        told["exit_code"] = _run(arguments, told)
    except Exception as error:
        from . import explained

        told["error"], told["exit_code"] = in_words(error), explained(error, verbose=arguments.verbose > 1)
    if arguments.json:
        tell(told)
    return int(told["exit_code"])


def _run(arguments: argparse.Namespace, told: dict[str, Any]) -> int:
    command = _command(arguments, told)
    if isinstance(command, int):
        return command
    leash = Leash()  # first: from here on there are threads
    job = Job(leash, command)
    try:
        from .settings import connect

        with connect(arguments) as locks, _interruptible():
            if arguments.ttl is None:
                arguments.ttl = min(TTL, getattr(locks.engine, "ttl_most", TTL))
            ttl = arguments.ttl
            grace = ttl / 4 if arguments.kill_after is None else arguments.kill_after
            if grace > ttl / 2:
                return _not_run(told, EX_USAGE, f"--kill-after {grace:g} must be at most half of --ttl {ttl:g}")
            return _hold(locks, arguments, job, grace, told)
    except Interrupted as interrupted:
        return 128 + interrupted.number
    finally:
        leash.let_go()


def _hold(locks: Locker, arguments: argparse.Namespace, job: Job, grace: float, told: dict[str, Any]) -> int:
    from ..errors import AcquireTimeout, LockHeld

    acquire = _way_in(locks, arguments, job)
    began = time.monotonic()
    try:
        lease = acquire()
    except (LockHeld, AcquireTimeout) as busy:
        told["waited"] = round(time.monotonic() - began, 3)
        if arguments.skip_ok and not arguments.json:
            return EX_OK
        from .looking import busy_with

        text = busy_with(busy, locks, arguments.name, arguments.slots)
        if arguments.skip_ok:
            told["error"] = text
            return EX_OK
        return _not_run(told, arguments.conflict_exit_code, text)
    waited, loud = time.monotonic() - began, arguments.verbose > 0
    told |= {"resource": lease.resource, "fence": lease.fence, "waited": round(waited, 3)}
    try:
        say(loud, f"{lease.resource}: acquired after {waited:.3f} s, fence {lease.fence}")
        ending = job.run(
            os.environ | _about(lease), lease, arguments.on_lost, grace, margin=min(1.0, lease.ttl / 20)
        )
        code = ending.code
        if ending.lost or not lease.held:
            lost = told["lost"] = _why(lease, time.monotonic() - began - waited, arguments.max_hold)
            complain(f"{lease.resource} was lost while {job.command[0]} ran: {lost}")
            if not ending.gone:
                complain(
                    f"some of its processes are still there, although they were killed (group {job.leash.pid})"
                )
            code = EX_LOST if ending.lost else code
    except (FileNotFoundError, NotADirectoryError):
        code = _not_run(told, EX_NOT_FOUND, f"{job.command[0]}: no such command")
    except PermissionError as error:
        code = _not_run(told, EX_CANNOT_RUN, f"{job.command[0]} cannot be run: {error.strerror}")
    finally:
        held = time.monotonic() - began - waited
        told["held"] = round(held, 3)
        lease.release()
    say(loud, f"{lease.resource}: released after {held:.3f} s, exit code {code}")
    return code


def _not_run(told: dict[str, Any], code: int, why: str) -> int:
    complain(why)
    told["error"] = why
    return code


def _command(arguments: argparse.Namespace, told: dict[str, Any]) -> list[str] | int:
    """What to run; or the exit code, where there is nothing to run. Found out before anybody waits for a lock."""
    if (arguments.shell is None) is not bool(arguments.command):
        about = "elect" if arguments.elects else "run"
        return _not_run(
            told, EX_USAGE, f"say what to run: -- COMMAND, or -c TEXT, and not both (see quorumlock {about} --help)"
        )
    if arguments.shell is not None:
        return ["/bin/sh", "-c", arguments.shell]
    command: list[str] = arguments.command
    if not _found(command[0], os.X_OK):
        there = _found(command[0], os.F_OK)
        why = f"{command[0]} cannot be run" if there else f"{command[0]}: no such command"
        return _not_run(told, EX_CANNOT_RUN if there else EX_NOT_FOUND, why)
    return command


def _found(command: str, mode: int) -> bool:
    """As shutil.which, which is slow to import."""
    places = [command] if "/" in command else [os.path.join(place, command) for place in os.get_exec_path()]
    return any(os.access(place, mode) and not os.path.isdir(place) for place in places)


def _way_in(locks: Locker, arguments: argparse.Namespace, job: Job) -> Callable[[], Lease]:
    """How to get the lock that was asked for."""
    options: dict[str, Any] = {"ttl": arguments.ttl, "note": arguments.note, "on_lost": job.ring}
    if arguments.elects:
        return locks.election(arguments.name, **options).lead().__enter__
    if arguments.max_hold is not None:
        options["max_hold"] = arguments.max_hold
    timeout = 0.0 if arguments.no_wait else arguments.timeout
    if arguments.shared:
        if arguments.slots is not None or arguments.at_least or arguments.fair:
            from ..errors import ConfigurationError

            raise ConfigurationError("--shared goes with none of --slots, --at-least and --fair: choose one")
        return locks.read_write(arguments.name).read(timeout=timeout, **options).acquire
    options |= {"at_least": arguments.at_least, "fair": arguments.fair, "timeout": timeout}
    if arguments.slots is not None:
        return locks.semaphore(arguments.name, arguments.slots, **options).acquire
    return locks.lock(arguments.name, **options).acquire


def _about(lease: Lease) -> dict[str, str]:
    return {
        "QUORUMLOCK_NAME": lease.name,
        "QUORUMLOCK_RESOURCE": lease.resource,
        "QUORUMLOCK_FENCE": str(lease.fence),
        "QUORUMLOCK_REMAINING": f"{lease.remaining():.3f}",
    }


def _why(lease: Lease, held: float, max_hold: float | None) -> str:
    from ..errors import LeaseLost, LossReason

    try:
        lease.check()
    except LeaseLost as lost:
        return lost.reason.value
    # It was ended before that, so as not to be at work then.
    if max_hold is not None and held + lease.remaining() >= max_hold:
        return LossReason.MAX_HOLD.value
    return LossReason.UNREACHABLE.value


class Interrupted(BaseException):
    """A signal that ends us while we wait for the lock."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Who is ended while it waits leaves nothing behind."""

    def interrupt(number: int, _: object) -> None:
        raise Interrupted(number)

    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    yield
