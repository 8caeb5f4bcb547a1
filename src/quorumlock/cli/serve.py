"""`quorumlock serve`: the dashboard."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigurationError, Unsupported
from .output import EX_OK, complain, spoken
from .parsing import add_fleet_options, add_verbose

if TYPE_CHECKING:
    from ..sync.locker import Locker

EPILOG = """\
examples:
  quorumlock serve                        for this machine: http://127.0.0.1:8731/
  quorumlock serve --allow-break          locks may be forced open from the page
  QUORUMLOCK_WEB_TOKEN=… quorumlock serve --host 0.0.0.0 --allowed-host locks.example.org

Without an access token it listens on loopback alone. The token comes from
QUORUMLOCK_WEB_TOKEN or a file, never from the command line, which others see.
Put a proxy with TLS in front of it: --trusted-proxy with its address, and
--root-path if that gives it a path.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=8731, metavar="N", help="default: 8731; 0: a free one")
    parser.add_argument("--token-file", metavar="PATH", help="a file with the access token")
    parser.add_argument("--allow-break", action="store_true", help="let visitors force locks open")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that visitors call it by; may repeat",
    )
    parser.add_argument("--root-path", default="", metavar="PATH", help="where a proxy puts it, as /locks")
    parser.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy whose X-Forwarded-For and -Proto are believed; may repeat",
    )
    parser.add_argument(
        "--every", type=float, default=1.0, metavar="SECONDS", help="between two looks at the fleet (default: 1)"
    )
    add_verbose(parser, "log what is asked; ")
    add_fleet_options(parser)


def run(arguments: argparse.Namespace) -> int:
    import dataclasses
    from contextlib import ExitStack, suppress

    import quorumlock

    from ..options import JOURNAL_MOST
    from ..web.settings import WebSettings, network

    settings = WebSettings(
        host=arguments.host,
        port=arguments.port,
        token=token(arguments.token_file, os.environ),
        allow_break=arguments.allow_break,
        allowed_hosts=frozenset(name.lower() for name in arguments.allowed_host),
        root_path=arguments.root_path.rstrip("/"),
        trusted_proxies=tuple(map(network, arguments.trusted_proxy)),
        every=arguments.every,
    )
    try:
        from ..web.server import listening, serve
    except ImportError as error:
        raise ConfigurationError(f"the dashboard needs {error.name}: pip install 'quorumlock[web]'") from error
    from .settings import connect, found

    with connect(arguments) as locks, ExitStack() as stack:
        ear = stack.enter_context(listening(settings.host, settings.port))
        settings = dataclasses.replace(settings, port=ear.getsockname()[1])
        breaker, chosen = None, found(arguments)
        if settings.allow_break and "journal" not in chosen.options:
            # How long a journal others keep, nobody told us: as the longest that there may be, ours cuts none.
            with suppress(Unsupported):  # where there is none
                breaker = stack.enter_context(
                    quorumlock.connect(chosen.values.get("url"), **chosen.options, journal=JOURNAL_MOST)
                )
        _warn(locks)
        serve(locks, breaker, settings, ear, verbose=arguments.verbose > 0)
    return EX_OK


def _warn(locks: Locker) -> None:
    """A dashboard of a fleet that is down is of use, but nobody should have to open it to learn that."""
    found = locks.nodes(1)
    ready = sum(node.state == "ready" for node in found)
    if ready <= len(found) // 2:
        why = "; ".join(f"{node.node} is {node.state} ({spoken(node.detail)})" for node in found if node.detail)
        complain(f"{ready} of {len(found)} nodes are ready: {why}")


def token(path: str | None, environment: Mapping[str, str]) -> str | None:
    """The access token, from a file or the environment; None: there is none. An empty one was meant to be one."""
    if path is None:
        source, read = "QUORUMLOCK_WEB_TOKEN", environment.get("QUORUMLOCK_WEB_TOKEN")
        if read is None:
            return None
    else:
        source = f"the token file {path}"
        try:
            read = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the token file cannot be read: {error}") from error
    if not read.strip():
        raise ConfigurationError(f"{source} is empty: put a token into it, or leave it out")
    return read.strip()
