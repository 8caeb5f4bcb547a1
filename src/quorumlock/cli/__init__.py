"""The command `quorumlock`.

It starts fast: only the module of the command that is called is imported, and an engine by whoever needs it. The
collector of garbage, which would look through all of it again and again, is held back.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import keyword
import sys
from collections.abc import Callable, Sequence

from .output import EX_INTERRUPTED, EX_OK, EX_UNREAD, code_of, complain, in_words, nobody_reads
from .parsing import Parser

__all__ = ["main"]

COMMANDS = {
    "run": "hold a lock while a command runs",
    "elect": "run a command wherever this candidate leads",
    "ls": "which locks are held, and by whom",
    "show": "who holds a lock, who waits for it, and what each node thinks",
    "watch": "what happens to locks, as it happens",
    "top": "all locks, on a screen that changes; q quits",
    "wait": "wait until a lock is free",
    "break": "force a lock open",
    "init": "make a new fleet ready at once",
    "serve": "a dashboard of locks, holders, waiters and nodes",
    "nodes": "how the nodes of a fleet are doing",
    "doctor": "look a fleet over: what is wrong, and what to do",
    "fleet": "a fleet of servers on this machine, for development",
    "config": "which fleet commands talk to, and who says so",
    "lab": "stories of locks that fail, replayed and drawn",
    "demo": "see a lock at work, and things that go wrong",
}
"""Each is a module of this package, with `add_options(parser)` and `run(arguments)`."""

EPILOG = """\
examples:
  quorumlock run nightly-report -- ./report.sh
  quorumlock run deploy --timeout 60 -c 'make build && make deploy'
  quorumlock init --url redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  quorumlock lab run pause-while-holding

`quorumlock COMMAND --help` tells more. Without --url and QUORUMLOCK_URL, locks
are kept in a file of this machine.

exit codes:
  0   done
  64  a mistake in the call or in the deployment
  69  nodes that do not answer, or a file that cannot be used
  75  the lock is held by somebody else
  76  the lock was lost while the command ran
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives its exit code."""
    if argv is None:  # we are the program
        gc.set_threshold(10_000)
        atexit.register(gc.freeze)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] not in COMMANDS:
            parser = general()
            parser.parse_args(words)  # ends with --help, --version or an error
            parser.error("COMMAND comes first")
        command = importlib.import_module(f".{words[0]}{'_' * keyword.iskeyword(words[0])}", __name__)
        parser = Parser(words[0], COMMANDS[words[0]])
        command.add_options(parser)
        own, mark, rest = _split(words[1:])
        arguments = parser.parse_args(own)
        if mark and not hasattr(arguments, "command"):
            parser.error("nothing is run here: there is no use for --")
        if mark:
            arguments.command = rest
    except SystemExit as done:  # in this way argparse ends
        return int(done.code or EX_OK)
    run: Callable[..., int] = command.run
    try:
        code = run(arguments)
        print(end="", flush=True)
        return code
    except KeyboardInterrupt:
        return EX_INTERRUPTED
    except BrokenPipeError:  # `quorumlock ls | head`: as if SIGPIPE had ended us
        nobody_reads()
        return EX_UNREAD
    except Exception as error:
        return explained(error, verbose=getattr(arguments, "verbose", 0) > 1)


def _split(words: list[str]) -> tuple[list[str], bool, list[str]]:
    """What stands before -- is ours, and what stands behind it somebody else's."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], at < len(words), words[at + 1 :]


def general() -> Parser:
    """What stands before the name of a command."""
    from .. import __version__

    parser = Parser(None, "A distributed lock manager: one lock kept by N independent nodes, with fencing tokens.")
    parser.usage, parser.epilog = "quorumlock [-h] [--version] COMMAND ...", EPILOG
    parser.add_argument("--version", action="version", version=f"quorumlock {__version__}")
    listed = "\n".join(f"{name:<8}{does}" for name, does in COMMANDS.items())
    commands = parser.add_argument_group("commands", listed)
    commands.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def explained(error: Exception, *, verbose: bool) -> int:
    """A line about what went wrong, and the exit code that says whose fault it is."""
    from ..errors import LockError

    if verbose or not isinstance(error, LockError | OSError):
        raise error
    complain(in_words(error))
    return code_of(error)
