"""`quorumlock doctor`: looks a fleet over, explains what is wrong, and says what to do."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .looking import add_looking_options, print_json, shown
from .output import EX_OK, EX_USAGE, complain, scrubbed, spoken
from .parsing import seconds

if TYPE_CHECKING:
    from ..doctoring.findings import Finding

EPILOG = """\
examples:
  quorumlock doctor --url redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  quorumlock doctor --json --seconds 10
  quorumlock doctor --acl --user locks --url redis://10.0.0.1

Nothing is changed on the nodes. It knows what its user may know: where INFO or
CONFIG GET is denied, it says so.

exit codes:
  0   all is well, as far as it could be seen
  1   there are warnings
  2   there are errors
"""
CODES = {"ok": 0, "unseen": 0, "warning": 1, "error": 2}
WIDTH = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=2.0,
        metavar="S",
        help="how long to watch clocks and latency (default: 2)",
    )
    parser.add_argument("--acl", action="store_true", help="only print an ACL line that allows what locks need")
    parser.add_argument("--user", default="quorumlock", metavar="NAME", help="for whom (default: quorumlock)")
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from ..doctoring.findings import worst
    from ..errors import ConfigurationError
    from .settings import connect

    try:
        with connect(arguments) as locks:
            if arguments.acl:
                return _acl(locks, arguments)
            from ..doctoring import examine

            findings = examine(locks, arguments.seconds)
    except ConfigurationError as error:
        if arguments.acl:
            raise
        findings = [_misconfigured(error)]
    if arguments.json:
        print_json({"severity": worst(findings), "findings": [dataclasses.asdict(one) for one in findings]})
    else:
        print(described(findings))
    return CODES[worst(findings)]


def _misconfigured(error: Exception) -> Finding:
    from ..doctoring.findings import ERROR, Finding

    remedy = "correct --url, QUORUMLOCK_URL or quorumlock.toml; `quorumlock config show` tells where it was found"
    return Finding("configuration", ERROR, None, scrubbed(str(error)), remedy)


def described(findings: Sequence[Finding]) -> str:
    """For people: the worst first, each with its remedy."""
    from ..doctoring.findings import SEVERITIES

    lines: list[str] = []
    for one in sorted(findings, key=lambda one: -SEVERITIES.index(one.severity)):
        about = f"{one.node} " if one.node else ""
        lines.append(_wrapped(f"{one.severity:8}{one.check}: ", f"{about}{one.says}", 10))
        if one.remedy:
            lines.append(_wrapped(f"{'':8}→ ", one.remedy, 10))
    return "\n".join(lines)


def _wrapped(head: str, text: str, indent: int) -> str:
    return textwrap.fill(head + shown(spoken(text)), WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def _acl(locks: Any, arguments: argparse.Namespace) -> int:
    from ..doctoring import acl_lines

    if locks.engine.name != "redis":
        complain("--acl is for users of Redis and Valkey servers: say which with --url")
        return EX_USAGE
    if not arguments.user.isprintable() or not arguments.user or " " in arguments.user:
        complain("--user must be a name without spaces")
        return EX_USAGE
    found = acl_lines(locks, arguments.user)
    if arguments.json:
        print_json([{"line": line, "nodes": nodes, "remarks": remarks} for line, nodes, remarks in found])
        return EX_OK
    for line, nodes, remarks in found:
        if len(found) > 1:
            print(f"# for {', '.join(nodes)}")
        for remark in remarks:
            print(f"# {shown(remark)}")
        print(line)
    return EX_OK
