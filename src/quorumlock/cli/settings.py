"""Where a command finds its fleet: what it is told, the environment, or quorumlock.toml.

The file is searched for in this folder and those above it, then in the user's configuration folder. It knows what
`connect` knows. Secrets need not be in it: ${NAME} in a URL is taken from the environment, and `url_file` names a
file that has the URL.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError

NAME = "quorumlock.toml"
KINDS: dict[str, type | tuple[type, ...]] = {
    "url": (str, list),
    "url_file": str,
    "prefix": str,
    "max_ttl": (int, float),
    "node_timeout": (int, float),
    "drift": (int, float),
    "quarantine": bool,
    "durable": bool,
    "fence_ttl": (int, float),
    "identify": bool,
    "patience": (int, float),
    "group": str,
    "fleet": str,
    "journal": int,
}


class Found:
    """What `connect` is to be called with, and where each word of it was found."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def put(self, key: str, value: Any, source: str) -> None:
        """What was found first counts."""
        if value is not None and key not in self.values:
            self.values[key], self.sources[key] = value, source

    @property
    def options(self) -> dict[str, Any]:
        """For `connect`, beside the URLs."""
        chosen = {key: value for key, value in self.values.items() if key != "url"}
        if "max_ttl" in chosen and "fence_ttl" not in chosen:
            chosen["fence_ttl"] = max(86400.0, 4 * chosen["max_ttl"])
        return chosen


def found(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Found:
    """Everything that says which fleet, the nearest first."""
    chosen = Found()
    urls = arguments.url
    chosen.put("url", urls[0] if urls and len(urls) == 1 else urls, "--url")
    for key in ("prefix", "max_ttl", "durable", "fleet"):
        chosen.put(key, getattr(arguments, key), f"--{key.replace('_', '-')}")
    chosen.put("url", environment.get("QUORUMLOCK_URL") or None, "QUORUMLOCK_URL")
    path = arguments.config or _nearest(environment)
    if path is not None:
        for key, value in _read(path, environment).items():
            chosen.put(key, value, path)
    return chosen


def connect(arguments: argparse.Namespace) -> Any:
    """A Locker on the fleet that a command is told of."""
    import logging

    import quorumlock

    chosen = found(arguments)
    if not getattr(arguments, "verbose", 0):
        logging.getLogger("quorumlock").addHandler(logging.NullHandler())  # commands say themselves what matters
    return quorumlock.connect(chosen.values.get("url"), **chosen.options)


def _nearest(environment: Mapping[str, str]) -> str | None:
    home = os.path.join(environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "quorumlock")
    folders = (*_upwards(os.getcwd()), home)
    return next((path for folder in folders if os.path.isfile(path := os.path.join(folder, NAME))), None)


def _upwards(folder: str) -> list[str]:
    above = os.path.dirname(folder)
    return [folder] if above == folder else [folder, *_upwards(above)]


def _read(path: str, environment: Mapping[str, str]) -> dict[str, Any]:
    import tomllib

    try:
        read = tomllib.loads(_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from error
    for key, value in read.items():
        if key not in KINDS:
            raise ConfigurationError(f"{path}: unknown {key!r}; known: {', '.join(KINDS)}")
        if not isinstance(value, KINDS[key]) or isinstance(value, bool) is not (KINDS[key] is bool):
            raise ConfigurationError(f"{path}: {key} cannot be {value!r}")
    if "url_file" in read:
        if "url" in read:
            raise ConfigurationError(f"{path}: give either url or url_file")
        try:
            read["url"] = _text(os.path.join(os.path.dirname(path), read.pop("url_file"))).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: url_file cannot be read: {error}") from error
    if "url" in read:
        urls = read["url"] if isinstance(read["url"], list) else [read["url"]]
        read["url"] = [_filled(str(url), path, environment) for url in urls]
        read["url"] = read["url"][0] if len(urls) == 1 else read["url"]
    return read


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _filled(url: str, path: str, environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ConfigurationError(f"{path}: the environment has no {match[1]}")
        return environment[match[1]]

    return re.sub(r"\$\{(\w+)\}", value, url)
