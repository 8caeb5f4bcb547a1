"""Parameters of a request: said once, for those who check them and for those who read about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .answers import Refusal


@dataclass(frozen=True, slots=True)
class Text:
    """Words, perhaps out of a few."""

    name: str
    about: str
    default: str | None = ""
    """None: it must be given."""
    choices: tuple[str, ...] = ()
    most: int = 1024

    def read(self, given: str) -> str:
        if self.choices and given not in self.choices:
            raise Refusal(400, f"{self.name} must be one of {', '.join(self.choices)}")
        if len(given) > self.most:
            raise Refusal(400, f"{self.name} has {len(given)} characters; {self.most} are allowed")
        return given

    def schema(self) -> dict[str, Any]:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        return {"type": "string", "maxLength": self.most, **({"minLength": 1} if self.default is None else {})}


@dataclass(frozen=True, slots=True)
class Whole:
    """A number without a fraction."""

    name: str
    about: str
    default: int
    least: int
    most: int

    def read(self, given: str) -> int:
        if given.isascii() and given.isdigit() and len(given) < 17 and self.least <= int(given) <= self.most:
            return int(given)
        raise Refusal(400, f"{self.name} must be an integer of {self.least} to {self.most}")

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most, "default": self.default}


def read(parameters: Sequence[Text | Whole], given: Mapping[str, str]) -> dict[str, Any]:
    """What a request asks for; refuses what makes no sense."""
    read: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name in given:
            read[parameter.name] = parameter.read(given[parameter.name])
        elif parameter.default is None:
            raise Refusal(400, f"{parameter.name} must be given")
        else:
            read[parameter.name] = parameter.default
    return read


def described(parameters: Sequence[Text | Whole]) -> list[dict[str, Any]]:
    """For OpenAPI."""
    return [
        {
            "name": one.name,
            "in": "query",
            "required": one.default is None,
            "description": one.about,
            "schema": one.schema(),
        }
        for one in parameters
    ]
