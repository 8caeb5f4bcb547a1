"""Processes for programs that need the library: forked from an interpreter that has imported it.

Each is a process of its own, to be killed and stopped, which has never opened anything; it starts in a tenth of the
CPU time that a new interpreter takes. Their standard output and input are pipes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Self

SERVER = """
import os, signal, socket, sys
import quorumlock, quorumlock.engines.sqlite

requests = socket.socket(fileno=int(sys.argv[1]))
children = set()

def run(program, files):
    requests.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})

while True:
    request, files, *_ = socket.recv_fds(requests, 1 << 20, 2)
    if not request:
        break
    if not files:  # the exit code of a process that ends, or has ended
        pid = int(request)
        children.discard(pid)
        requests.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    elif pid := os.fork():
        children.add(pid)
        for file in files:
            os.close(file)
        requests.send(b"%d" % pid)
    else:
        run(request.decode(), files)
        sys.exit()
for pid in children:
    os.kill(pid, signal.SIGKILL)  # it was not waited for, so the number is still its own
"""


class ForkServer:
    """The interpreter that forks. It ends all of its processes with itself."""

    def __init__(self) -> None:
        self._requests, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(other.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
            )

    def start(self, program: str) -> Forked:
        """A process that runs `program`, which finds `quorumlock` imported already when it imports it."""
        (reads, gives), (takes, writes) = os.pipe(), os.pipe()
        socket.send_fds(self._requests, [program.encode()], [reads, writes])
        os.close(reads)
        os.close(writes)
        return Forked(self, int(self._requests.recv(64)), takes, gives)

    def wait(self, pid: int) -> int:
        """The exit code of a process, when it has ended; to be asked once."""
        self._requests.send(b"%d" % pid)
        return int(self._requests.recv(64))

    def close(self) -> None:
        self._requests.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Forked:
    """A process that a `ForkServer` has started."""

    def __init__(self, server: ForkServer, pid: int, output: int, input_: int) -> None:
        self._server = server
        self.pid = pid
        self.output = os.fdopen(output, "r")
        self.input = os.fdopen(input_, "w")
        self._code: int | None = None

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        if self._code is None:
            self._code = self._server.wait(self.pid)
        return self._code

    def signal(self, number: int) -> None:
        """Sends a signal, unless the process was waited for."""
        if self._code is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        self.input.close()
        self.output.close()
