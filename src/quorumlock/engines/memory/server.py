"""The double of a Redis server: the scripts' meaning in Python, with a clock and a memory one can tamper with.

It understands exactly what the engine sends (its own scripts, loaded or not, CLIENT INFO and CLIENT KILL) and
answers what the real server would: a differential test runs the same random commands against both. Its
memory is in `keys.py`, the scripts in `locks.py`, `family.py` and `joining.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ..redis import scripts
from ..redis.resp import ReplyError
from .joining import Joining
from .keys import Reply, Value

_UNMARKED = (scripts.RELEASE.sha, scripts.RELEASE_MANY.sha, scripts.UNREAD.sha)
_NOTING = {noted.sha: (plain, plain not in _UNMARKED) for plain, noted in scripts.NOTED.items()}
_NOTING[scripts.REFUSED.sha] = (scripts.REFUSED.sha, False)
"""Scripts that write down what they do: the one that does the same, and whether the marker stands behind it."""


class ServerDouble(Joining):
    """One node's memory and the scripts it runs. `clock` gives the node's own time, in seconds.

    Scripts are run by one thread at a time. Others may tamper with its memory meanwhile: a script that finds a key
    gone in the midst of it goes on as if it had been deleted behind it.
    """

    def __init__(self, clock: Callable[[], float], run_id: str = "run-0") -> None:
        super().__init__()
        self.clock = clock
        self.run_id = run_id
        self.replication_id = "repl-0"
        self.role = "master"
        self.mode = "standalone"
        self.maxmemory = 0
        self.policy = "noeviction"
        self.on_kill: Callable[[int], None] | None = None
        """Called with the id of a connection that a client wants ended."""
        self._loaded: set[str] = set()
        self._scripts: dict[str, Callable[[list[bytes], list[bytes]], Reply]] = {
            scripts.ACQUIRE.sha: self._acquire,
            scripts.QUEUE.sha: self._queue,
            scripts.CONFIRM.sha: self._confirm,
            scripts.EXTEND.sha: self._extend,
            scripts.HEAL.sha: self._heal,
            scripts.READ.sha: self._read,
            scripts.ANY.sha: self._any,
            scripts.ALL.sha: self._all,
            scripts.CONFIRM_MANY.sha: self._confirm_many,
            scripts.DOWNGRADE.sha: self._downgrade,
            scripts.RELEASE.sha: self._release,
            scripts.RELEASE_MANY.sha: self._release_many,
            scripts.UNREAD.sha: self._unread,
            scripts.CELL.sha: self._cell,
            scripts.INSPECT.sha: self._inspect,
            scripts.INSPECT_MANY.sha: self._inspect_many,
            scripts.SCAN.sha: self._scan,
            scripts.BREAK.sha: self._break,
            scripts.LOOK.sha: self._look,
            scripts.JOIN.sha: self._join,
            scripts.PAST.sha: self._past,
            scripts.REFUSED.sha: self._refused,
        }

    # What a client sees.

    def execute(self, command: list[bytes], client_id: int = 0) -> Reply:
        """The reply to one command: int, bytes, None, a list of these, or a ReplyError."""
        match [command[0].upper(), *command[1:]]:
            case [b"EVALSHA", sha, count, *rest]:
                if sha.decode() not in self._loaded:
                    return ReplyError("NOSCRIPT No matching script. Please use EVAL.")
                return self._run(sha.decode(), int(count), rest)
            case [b"EVAL", source, count, *rest]:
                sha_ = hashlib.sha1(source, usedforsecurity=False).hexdigest()
                self._loaded.add(sha_)
                return self._run(sha_, int(count), rest)
            case [b"SCRIPT", b"LOAD", source]:
                self._loaded.add(hashlib.sha1(source, usedforsecurity=False).hexdigest())
                return b"loaded"
            case [b"CLIENT", b"INFO"]:
                return b"id=%d addr=%b name=" % (client_id, self._address(client_id))
            case [b"CLIENT", b"KILL", b"ID", victim, b"ADDR", address]:
                known = self._address(int(victim)) == address
                if known and self.on_kill is not None:
                    self.on_kill(int(victim))
                return int(known)
            case [b"SUBSCRIBE", channel]:
                return [b"subscribe", channel, 1]
            case [b"PING"]:
                return [b"pong", b""]
        return ReplyError(f"ERR the double does not know {command[0]!r}")

    # What a test or a simulation does to it.

    def get(self, key: str) -> Value | None:
        return self._get(key.encode())

    def set(self, key: str, value: Value, ttl_ms: int | None = None) -> None:
        self._set(key.encode(), value, ttl_ms)

    def pttl(self, key: str) -> int:
        return self._pttl(key.encode())

    def delete(self, key: str) -> None:
        self._data.pop(key.encode(), None)

    def keys(self) -> list[str]:
        return sorted(key.decode() for key in list(self._data) if self._get(key) is not None)

    def flush(self) -> None:
        self._data.clear()

    def forget_scripts(self) -> None:
        self._loaded.clear()

    def snapshot(self) -> dict[bytes, tuple[Value, int | None]]:
        """What a disk would hold now."""
        return dict(self._data)

    def restart(self, run_id: str, disk: dict[bytes, tuple[Value, int | None]] | None = None) -> None:
        """A new process: another run id, and only what the disk holds."""
        self.run_id = run_id
        self.replication_id = f"repl-of-{run_id}"
        self._data = dict(disk or {})
        self._loaded.clear()

    def _address(self, client_id: int) -> bytes:
        """Of a connection; no two processes of a server have one in common."""
        return f"{self.run_id}:{client_id}".encode()

    # The scripts, each under its own name.

    def _run(self, sha: str, count: int, rest: list[bytes]) -> Reply:
        keys, argv = rest[:count], rest[count:]
        if sha in _NOTING:
            plain, marked = _NOTING[sha]
            with self._noting(argv[-2]):
                return self._scripts[plain](keys, [*argv[:-2], *(argv[-1:] if marked else ())])
        if sha not in self._scripts:
            return ReplyError("ERR the double does not know this script")
        return self._scripts[sha](keys, argv)


def encode(reply: Reply) -> bytes:
    """A reply as RESP2."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, ReplyError):
        return b"-%b\r\n" % str(reply).encode()
    return b"*%d\r\n" % len(reply) + b"".join(encode(item) for item in reply)
