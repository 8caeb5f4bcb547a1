"""`quorumlock ls`: which locks are held, and by whom."""

from __future__ import annotations

import argparse

from .looking import add_looking_options, add_pattern, ago, as_json, print_json, table, who
from .output import EX_OK

EPILOG = """\
examples:
  quorumlock ls                     all that are held
  quorumlock ls 'orders:*' --json   in a pattern * and ? stand for anything

Servers are searched in small steps: others are answered in between.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_pattern(parser)
    parser.add_argument("--limit", type=int, default=1000, metavar="N", help="no more than that (default: 1000)")
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from .settings import connect

    with connect(arguments) as locks:
        held = locks.survey(arguments.pattern, arguments.limit)
    if arguments.json:
        print_json([as_json(found) for found in held])
    elif held:
        rows = [
            (
                found.name,
                found.state if found.kind in (None, "mutex") else f"{found.state} ({found.kind})",
                who(found.holder) + (f" and {len(found.holders) - 1} more" if len(found.holders) > 1 else ""),
                ago(found.holder.since) if found.holder else "",
                str(found.holder.fence or "") if found.holder else "",
                str(len(found.waiters) or ""),
                (found.holder.note or "") if found.holder else "",
            )
            for found in held
        ]
        print(table(("NAME", "STATE", "HOLDER", "FOR", "FENCE", "WAITING", "NOTE"), rows))
    else:
        print(
            "no lock is held" if arguments.pattern == "*" else f"no lock that matches {arguments.pattern} is held"
        )
    return EX_OK
