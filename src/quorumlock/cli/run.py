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
from .output import EX_CANNOT_RUN, EX_HELD, EX_LOST, EX_NOT_FOUND, EX_OK, EX_USAGE, complain, say, tell
from .parsing import add_fleet_options, add_verbose, seconds

if TYPE_CHECKING:
    from quorumlock import Lease, Locker

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
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.epilog = USAGE, EPILOG
    parser.add_argument("name", metavar="NAME", help="of the lock")
    parser.set_defaults(command=[], elects=False)
    parser.add_argument("-c", dest="shell", metavar="TEXT", help="run this with sh -c")

    waiting = parser.add_argument_group("waiting (default: as long as it takes)")
    waiting.add_argument("-n", "--no-wait", action="store_true", help="give up at once if it is held")
    waiting.add_argument("-w", "--timeout", type=seconds, metavar="S", help="give up after so many seconds")
    waiting.add_argument(
        "-E", "--conflict-exit-code", type=_code, default=EX_HELD, metavar="N", help="when it is held (default: 75)"
    )
    waiting.add_argument("--skip-ok", action="store_true", help="held is fine: exit with 0")
    waiting.add_argument("--fair", action="store_true", help="never overtake who came before")

    lock = parser.add_argument_group("the lock")
    lock.add_argument("-s", "--shared", action="store_true", help="share it with others who say --shared")
    lock.add_argument("--slots", type=int, metavar="N", help="let N have it at a time")
    lock.add_argument(
        "--ttl",
        type=seconds,
        default=30.0,
        metavar="S",
        help="it is renewed while the command runs, and outlives a machine that dies by so much (default: 30)",
    )
    lock.add_argument("--max-hold", type=seconds, metavar="S", help="it is lost after that (default: a day)")
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
    command = _command(arguments)
    if isinstance(command, int):
        return command
    grace = arguments.ttl / 4 if arguments.kill_after is None else arguments.kill_after
    if grace > arguments.ttl / 2:
        complain(f"--kill-after {grace:g} must be at most half of --ttl {arguments.ttl:g}: it is renewed by then")
        return EX_USAGE
    leash = Leash()  # first: from here on there are threads
    job = Job(leash, command)
    try:
        from .settings import connect

        with connect(arguments) as locks, _interruptible():
            return _run(locks, arguments, job, grace)
    except Interrupted as interrupted:
        return 128 + interrupted.number
    finally:
        leash.let_go()


def _run(locks: Locker, arguments: argparse.Namespace, job: Job, grace: float) -> int:
    from ..errors import AcquireTimeout, LockHeld

    acquire = _way_in(locks, arguments, job)
    began = time.monotonic()
    try:
        lease = acquire()
    except (LockHeld, AcquireTimeout) as busy:
        if arguments.skip_ok:
            return EX_OK
        from .looking import complain_of

        complain_of(busy, locks, arguments.name)
        code: int = arguments.conflict_exit_code
        return code
    waited, told, lost = time.monotonic() - began, arguments.verbose > 0, None
    try:
        say(told, f"{lease.resource}: acquired after {waited:.3f} s, fence {lease.fence}")
        ending = job.run(
            os.environ | _about(lease), lease, arguments.on_lost, grace, margin=min(1.0, lease.ttl / 20)
        )
        code = ending.code
        if ending.lost or not lease.held:
            lost = _why(lease, time.monotonic() - began - waited, arguments.max_hold)
            complain(f"{lease.resource} was lost while {job.command[0]} ran: {lost}")
            if not ending.gone:
                complain(
                    f"some of its processes are still there, although they were killed (group {job.leash.pid})"
                )
            code = EX_LOST if ending.lost else code
    except (FileNotFoundError, NotADirectoryError):
        complain(f"{job.command[0]}: no such command")
        code = EX_NOT_FOUND
    except PermissionError as error:
        complain(f"{job.command[0]} cannot be run: {error.strerror}")
        code = EX_CANNOT_RUN
    finally:
        held = time.monotonic() - began - waited
        lease.release()
    say(told, f"{lease.resource}: released after {held:.3f} s, exit code {code}")
    if arguments.json:
        tell({
            "name": lease.name, "resource": lease.resource, "fence": lease.fence, "waited": round(waited, 3),
            "held": round(held, 3), "exit_code": code, "lost": lost,
        })  # fmt: skip
    return code


def _command(arguments: argparse.Namespace) -> list[str] | int:
    """What to run; or the exit code, where there is nothing to run. Found out before anybody waits for a lock."""
    if (arguments.shell is None) is not bool(arguments.command):
        complain("say what to run: -- COMMAND, or -c TEXT, and not both (see quorumlock run --help)")
        return EX_USAGE
    if arguments.shell is not None:
        return ["/bin/sh", "-c", arguments.shell]
    command: list[str] = arguments.command
    if not _found(command[0], os.X_OK):
        there = _found(command[0], os.F_OK)
        complain(f"{command[0]} cannot be run" if there else f"{command[0]}: no such command")
        return EX_CANNOT_RUN if there else EX_NOT_FOUND
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


def _code(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 255:
        raise ValueError(text)
    return value
