"""`quorumlock demo`: a lock at work, and things that go wrong."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Starts five Valkey nodes on this machine and three workers that share one lock; "
        "kills two nodes, and stops a worker in mid-work; shows that nothing is lost."
    )
    parser.add_argument("--plain", action="store_true", help="lines of text, also on a terminal")
    parser.add_argument(
        "--seconds", type=_moment, default=3.0, metavar="SECONDS", help="how long to watch each part (default: 3)"
    )


def run(arguments: argparse.Namespace) -> int:
    from ..lab.demo import demo

    return demo(plain=arguments.plain, seconds=arguments.seconds)


def _moment(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise ValueError(text)
    return value
