"""For the decorator `Locker.locked`: what it may decorate, and the name of the lock for each call."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Iterator
from typing import Any

from . import options
from .errors import ConfigurationError

ON_BUSY = ("raise", "skip")


def naming(value: object) -> Callable[[Callable[..., Any]], Callable[..., str]]:
    """For a decorator: what makes, for a function, the name of a lock from the arguments of a call."""
    if callable(value):
        return lambda _: value
    if isinstance(value, str) and ("{" in value or "}" in value):
        return lambda function: _template(value, function)
    fixed = options.name(value)
    return lambda _: lambda *_, **__: fixed


def _template(text: str, function: Callable[..., Any]) -> Callable[..., str]:
    """Fills in the arguments of a call: `orders:{order_id}`."""
    signature = inspect.signature(function)
    known = signature.parameters
    further = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    try:
        fields = list(_fields(text))
    except ValueError as error:
        raise ConfigurationError(f"name={options.shown(text)} is no template: {error}") from None
    for field in fields:
        argument = re.split(r"[.\[]", field, maxsplit=1)[0]
        if argument not in known and (not further or not argument.isidentifier()):
            raise ConfigurationError(
                f"name={options.shown(text)} asks for {argument!r}, which {function.__qualname__} does not "
                f"take: it has {', '.join(known) or 'no arguments'}"
            )

    def named(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for one in known.values():
            if one.kind is inspect.Parameter.VAR_KEYWORD:
                values |= values.get(one.name, {})
        try:
            return text.format_map(values)
        except (KeyError, AttributeError, IndexError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"name={options.shown(text)} cannot be made from this call: {type(error).__name__}: {error}"
            ) from None

    return named


def _fields(text: str) -> Iterator[str]:
    """What a template asks for, also within how something is to be written: `{order:{width}}`."""
    for _, field, spec, _ in string.Formatter().parse(text):
        if field is not None:
            yield field
            yield from _fields(spec or "")


def plain_function(parameter: str, value: object) -> None:
    if not callable(value) or inspect.iscoroutinefunction(value) or _yields(value):
        raise ConfigurationError(
            f"{parameter} is for plain functions, not {options.shown(value)}: a coroutine function belongs to an "
            "AsyncLocker, and a generator would go on outside of the lock"
        )


def coroutine_function(parameter: str, value: object) -> None:
    if not inspect.iscoroutinefunction(value):
        raise ConfigurationError(
            f"{parameter} is for coroutine functions (async def), not {options.shown(value)}: a plain function "
            "belongs to a Locker, and a generator would go on outside of the lock"
        )


def _yields(value: object) -> bool:
    return inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value)
