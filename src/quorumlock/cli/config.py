"""`quorumlock config show`: which fleet commands talk to, and who says so."""

from __future__ import annotations

import argparse

from .looking import add_looking_options, print_json, table
from .output import EX_OK, scrubbed


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = """\
example of a quorumlock.toml, in this folder or one above it, or in the folder
quorumlock of the user's configuration:
  url = ["redis://:${REDIS_PASSWORD}@10.0.0.1", "redis://:${REDIS_PASSWORD}@10.0.0.2",
         "redis://:${REDIS_PASSWORD}@10.0.0.3"]
  prefix = "shop:"
  max_ttl = 60
"""
    parser.add_argument("what", choices=["show"], metavar="show", help="what is used, and where it was found")
    add_looking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from .settings import found

    chosen = found(arguments)
    values = {key: _redacted(value) for key, value in chosen.values.items()}
    if "url" not in values:
        values["url"] = "sqlite:// (the file of this user on this machine)"
        chosen.sources["url"] = "default"
    if arguments.json:
        print_json({key: {"value": value, "from": chosen.sources[key]} for key, value in sorted(values.items())})
    else:
        print(
            table(
                ("OPTION", "VALUE", "FROM"),
                [(key, str(values[key]), chosen.sources[key]) for key in sorted(values)],
            )
        )
    return EX_OK


def _redacted(value: object) -> object:
    if isinstance(value, list):
        return [_redacted(one) for one in value]
    return scrubbed(value) if isinstance(value, str) else value
