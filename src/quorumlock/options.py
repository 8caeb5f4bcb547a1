"""What users may ask for, and the sentences they get when it makes no sense.

Everything here runs before anything is sent. A message names the parameter, the value and what is allowed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import ConfigurationError

if TYPE_CHECKING:
    from .retry import Retry

MIN_TTL = 0.01
MAX_TTL = 86_400.0
NAME_BYTES = 1024
FOREVER = 366 * 86_400.0
JOURNAL_MOST = 10_000_000

_FORBIDDEN = re.compile(r"[{}*?\[\]\\]")


def shown(value: object) -> str:
    """`value` for an error message: never long, never with control characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"an {type(value).__name__} too long to be shown"
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"


def real(parameter: str, value: object, least: float, most: float) -> float:
    """A finite number of `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError(f"{parameter}={shown(value)} must be a number of {least:g} to {most:g}")
    if not least <= value <= most:  # false for NaN, too
        raise ConfigurationError(f"{parameter}={shown(value)} must be within {least:g} and {most:g}")
    return float(value)


def whole(parameter: str, value: object, least: int, most: int) -> int:
    """An integer of `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigurationError(f"{parameter}={shown(value)} must be an integer of {least} to {most}")
    return value


def flag(parameter: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{parameter}={shown(value)} must be True or False")
    return value


def names(value: object, most: int) -> tuple[str, ...]:
    """Several names of locks, each once."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or not 1 <= len(value) <= most:
        raise ConfigurationError(f"names={shown(value)} must be a list of 1 to {most} names of locks")
    checked = tuple(name(one) for one in value)
    for one in checked:
        if checked.count(one) > 1:
            raise ConfigurationError(f"names={shown(value)} has {one!r} more than once")
    return checked


def pattern(value: object) -> str:
    """A name in which * and ? may stand for anything."""
    if not isinstance(value, str):
        raise ConfigurationError(f"pattern={shown(value)} must be a str, not {type(value).__name__}")
    text("pattern", re.sub(r"[*?]", "x", value))
    return value


def callback(parameter: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise ConfigurationError(f"{parameter}={shown(value)} must be callable")
    return value


def choice(parameter: str, value: object, allowed: tuple[str, ...]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in allowed:
        raise ConfigurationError(f"{parameter}={shown(value)} must be one of {', '.join(map(repr, allowed))}")
    return value


def strategy(parameter: str, value: object) -> None:
    """A retry strategy: a value with `delay`, not the class of one."""
    if isinstance(value, type) or not callable(getattr(value, "delay", None)):
        raise ConfigurationError(
            f"{parameter}={shown(value)} must be a retry strategy such as Jitter(0.2) or Limit(Jitter(0.2), 3)"
        )


def text(parameter: str, value: object, *, empty: bool = False) -> str:
    """Text that is safe as a part of a key on every engine: printable, no braces, no glob characters."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{parameter}={shown(value)} must be a str, not {type(value).__name__}")
    if not value and not empty:
        raise ConfigurationError(f"{parameter}='' must not be empty: 1 to {NAME_BYTES} bytes of UTF-8")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{parameter}={shown(value)} holds a lone surrogate, which is no UTF-8") from None
    if size > NAME_BYTES:
        raise ConfigurationError(
            f"{parameter}={shown(value)} has {size} bytes; {NAME_BYTES} bytes of UTF-8 are allowed"
        )
    if not value.isascii() or not value.isprintable():
        for character in value:
            if unicodedata.category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp"):
                raise ConfigurationError(
                    f"{parameter}={shown(value)} holds {character!r}; control characters, line breaks "
                    "and NUL are not allowed"
                )
    if found := _FORBIDDEN.search(value):
        raise ConfigurationError(
            f"{parameter}={shown(value)} holds {found.group()!r}; the characters {{ }} * ? [ ] \\ are not "
            "allowed: braces mark the library's own keys, the others are patterns"
        )
    return value


def name(value: object) -> str:
    """The name of a lock."""
    value = text("name", value)
    if value.startswith("ql:"):
        raise ConfigurationError(f"name={shown(value)} begins with 'ql:', which is the library's own namespace")
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """What `connect` was told, checked."""

    prefix: str
    node_timeout: float
    drift: float
    max_ttl: float
    quarantine: bool | None
    durable: bool
    fence_ttl: float
    identify: bool
    retry: Retry
    patience: float
    group: str | None
    fleet: str | None
    journal: int | None = None

    def __post_init__(self) -> None:
        text("prefix", self.prefix, empty=True)
        if self.prefix.startswith("ql:"):
            raise ConfigurationError(f"prefix={shown(self.prefix)} begins with 'ql:', which is the library's own")
        real("node_timeout", self.node_timeout, 0.001, 60.0)
        real("drift", self.drift, 0.0, 0.2)
        real("max_ttl", self.max_ttl, MIN_TTL, MAX_TTL)
        if self.quarantine is not None:
            flag("quarantine", self.quarantine)
        flag("durable", self.durable)
        real("fence_ttl", self.fence_ttl, 4 * self.max_ttl, FOREVER)
        flag("identify", self.identify)
        strategy("retry", self.retry)
        real("patience", self.patience, 0.0, FOREVER)
        if self.journal is not None:
            whole("journal", self.journal, 1, JOURNAL_MOST)
        for parameter in ("group", "fleet"):
            value = getattr(self, parameter)
            if value is not None:
                text(parameter, value)


@dataclass(frozen=True, slots=True)
class LockOptions:
    """What `Locker.lock` was told, checked against what its fleet allows."""

    ttl: float
    timeout: float | None
    keep: bool
    max_hold: float
    reentrant: bool
    fair: bool
    lock_delay: float
    at_least: float
    note: str | None
    on_lost: Callable[[Any], object] | None

    @classmethod
    def checked(
        cls,
        settings: Settings,
        *,
        ttl: float,
        timeout: float | None,
        keep: bool,
        max_hold: float,
        reentrant: bool,
        fair: bool,
        lock_delay: float,
        at_least: float,
        note: str | None,
        on_lost: Callable[[Any], object] | None,
    ) -> LockOptions:
        ttl = checked_ttl(settings, ttl)
        lock_delay = real("lock_delay", lock_delay, 0.0, settings.max_ttl)
        if ttl + lock_delay > settings.max_ttl:
            raise ConfigurationError(
                f"ttl={ttl:g} and lock_delay={lock_delay:g} are more than max_ttl={settings.max_ttl:g} together"
            )
        if note is not None:
            text("note", note)
        callback("on_lost", on_lost)
        return cls(
            ttl=ttl,
            timeout=checked_timeout(timeout),
            keep=flag("keep", keep),
            max_hold=real("max_hold", max_hold, MIN_TTL, FOREVER),
            reentrant=flag("reentrant", reentrant),
            fair=flag("fair", fair),
            lock_delay=lock_delay,
            at_least=real("at_least", at_least, 0.0, settings.max_ttl),
            note=note,
            on_lost=on_lost,
        )


def checked_ttl(settings: Settings, value: object) -> float:
    """A ttl that the fleet's quarantine covers."""
    return real("ttl", value, MIN_TTL, settings.max_ttl)


def checked_timeout(value: object) -> float | None:
    """Seconds to wait; None: as long as it takes."""
    return None if value is None else real("timeout", value, 0.0, FOREVER)
