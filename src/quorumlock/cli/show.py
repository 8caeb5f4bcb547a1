"""`quorumlock show`: who holds a lock, who waits for it, and what each node thinks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .looking import add_looking_options, ago, as_json, print_json, shown, slots_of, span, table, who
from .output import EX_OK

if TYPE_CHECKING:
    from ..inspecting import Inspection


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example:\n  quorumlock show orders:42\n"
    parser.add_argument("name", metavar="NAME", help="of the lock; name#0 for a slot of a semaphore")
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from .settings import connect

    with connect(arguments) as locks:
        found = locks.inspect(arguments.name)
        slots = slots_of(locks, arguments.name) if found.state == "free" else []
    if arguments.json:
        print_json({**as_json(found), "slots": [as_json(one) for one in slots]})
        return EX_OK
    print(described(found))
    if slots:
        print(f"of a semaphore of this name {_count(slots)}:")
    for slot in slots:
        print(described(slot).partition("\n  NODE")[0])
    return EX_OK


def _count(slots: list[Inspection]) -> str:
    return "one slot is held" if len(slots) == 1 else f"{len(slots)} slots are held"


def described(found: Inspection) -> str:
    """Everything, for people."""
    kind = f" ({found.kind})" if found.kind not in (None, "mutex") else ""
    lines = [f"{shown(found.name)}: {found.state}{kind}"]
    for holder in found.holders:
        since = f" for {ago(holder.since)}" if holder.since is not None else ""
        lines.append(f"  held by {who(holder)}{since}, fence {holder.fence}, {span(holder.remaining)} left")
        if holder.note:
            lines.append(f"  note: {shown(holder.note)}")
    lines += [
        f"  waits: {waiter.host or '?'}:{waiter.pid or '?'}{' (to share it)' if waiter.shares else ''}"
        for waiter in found.waiters
    ]
    rows = [
        (
            f"  {view.node}",
            view.says,
            span(view.remaining) if view.remaining else "",
            str(view.fence or ""),
            view.token or "",
        )
        for view in found.nodes
    ]
    return "\n".join([*lines, table(("  NODE", "SAYS", "LEFT", "FENCE", "TOKEN"), rows)])
