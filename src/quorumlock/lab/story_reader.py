"""Reads scenario files, and refuses what is wrong in them: with the line, and the reason."""

from __future__ import annotations

import difflib
import re
import string
import tomllib
from collections.abc import Mapping
from typing import Any

from .naive import DESIGNS
from .story import ACTS, FACTS, BadStory, Cast, Expectation, Step, Story, Telling

CLIENT_FAULTS: dict[str, set[str]] = {
    "pauses": {"for"},
    "dies": set(),
    "hangs": set(),
    "loses its worker": set(),
    "is cut off": {"from", "for"},
    "hears nothing": {"from", "for"},
    "is late": {"to", "for"},
    "is near": {"to"},
    "is slow": {"by"},
    "sets its clock": {"by"},
}
NODE_FAULTS: dict[str, set[str]] = {
    "die": set(),
    "hang": {"for"},
    "restart": {"disk"},
    "save": set(),
    "fail over": set(),
    "replicate": set(),
    "step": {"by"},
    "drift": {"by"},
    "evict": set(),
    "run short of memory": set(),
}
NEEDED = {"works": {"for"}, "pauses": {"for"}, "is late": {"to", "for"}, "is near": {"to"}, "is slow": {"by"},
          "sets its clock": {"by"}, "step": {"by"}, "drift": {"by"}}  # fmt: skip
"""Options that have no default."""
OPERATOR: dict[str, set[str]] = {"breaks the lock": set()}
BOUNDS = {
    "ttl": (0.05, 3600.0),
    "max_ttl": (0.0, 3600.0),
    "node_timeout": (0.001, 60.0),
    "latency": (0.0001, 60.0),
    "max_hold": (0.05, 86400.0),
}
LONGEST = 3600.0
"""Seconds that a story may take."""


def parse(text: str, name: str) -> Story:
    """A scenario from the text of its file; raises BadStory with line and reason."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"^(.*) \(at line (\d+)", str(error))
        line, why = (int(found[2]), found[1]) if found else (text.count("\n") + 1, str(error))
        raise BadStory(f"{name}.toml, line {line}: {why}") from None
    except RecursionError:
        raise BadStory(f"{name}.toml, line 1: nested too deeply") from None
    return _Reader(text, name).story(table)


class _Reader:
    """Turns tables into a story, and knows on which line things are written."""

    def __init__(self, text: str, name: str) -> None:
        self.lines = text.splitlines()
        self.name = name
        self.step_lines = [i for i, line in enumerate(self.lines, 1) if line.lstrip().startswith("{")]

    def wrong(self, why: str, line: int) -> BadStory:
        return BadStory(f"{self.name}.toml, line {line}: {why}")

    def line_of(self, key: str, after: int = 0) -> int:
        """Where a key is written; else where its table begins."""
        for number, line in enumerate(self.lines[after:], after + 1):
            if re.match(rf"\s*\[?{re.escape(key)}\b", line):
                return number
        return max(after, 1)

    def story(self, table: dict[str, Any]) -> Story:
        known = {"title", "story", "told_by", "until", "cast", "steps", "ours", "naive", "note"}
        self.only(table, known, "a story")
        cast = self.cast(self.get(table, "cast", dict))
        until = self.number(table, "until")
        if not 0 < until <= LONGEST:
            raise self.wrong(
                f"'until' is to be above 0, and at most {LONGEST:g}, not {until:g}", self.line_of("until")
            )
        steps = tuple(self.step(i, one, cast) for i, one in enumerate(self.get(table, "steps", list)))
        return Story(
            name=self.name,
            title=self.get(table, "title", str),
            text=" ".join(self.get(table, "story", str).split()),
            told_by=self.get(table, "told_by", str, ""),
            until=until,
            cast=cast,
            steps=steps,
            ours=self.telling(table, "ours", cast, "ours"),
            naive=self.telling(table, "naive", cast, None),
            note=self.get(table, "note", str, ""),
        )

    def only(self, table: Mapping[str, Any], known: set[str], what: str, after: int = 0, line: int = 0) -> None:
        """Refuses keys that nobody knows; `line`: where the table is written, if it is on one line."""
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise self.wrong(f"{what} has no {key!r}{hint}", line or self.line_of(key, after))

    def get(self, table: Mapping[str, Any], key: str, kind: type, default: Any = None, line: int = 0) -> Any:
        value = table.get(key, default)
        if value is None:
            raise self.wrong(f"{key!r} is missing", line or 1)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            word = {str: "a text", list: "a list", dict: "a table", bool: "true or false"}.get(kind, kind.__name__)
            raise self.wrong(f"{key!r} is to be {word}, not {value!r}", line or self.line_of(key))
        return value

    def number(self, table: Mapping[str, Any], key: str, default: float | None = None, line: int = 0) -> float:
        value = table.get(key, default)
        if value is None:
            raise self.wrong(f"{key!r} is missing", line or 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e6 or value != value:
            raise self.wrong(f"{key!r} is to be a number of seconds, not {value!r}", line or self.line_of(key))
        return float(value)

    def cast(self, table: dict[str, Any]) -> Cast:
        line = self.line_of("cast")
        self.only(table, set(Cast.__slots__), "the cast", line=line)
        clients = tuple(self.get(table, "clients", list, line=line))
        letters = all(isinstance(one, str) and re.fullmatch("[A-E]", one) for one in clients)
        if not clients or not letters or len(set(clients)) < len(clients):
            raise self.wrong(f"'clients' are different single letters from A to E, not {list(clients)!r}", line)
        nodes = table.get("nodes", 5)
        if not isinstance(nodes, int) or isinstance(nodes, bool) or not 1 <= nodes <= 9:
            raise self.wrong(f"'nodes' is to be 1 to 9, not {nodes!r}", line)
        times = {
            key: self.number(table, key, getattr(Cast(clients), key), line)
            for key in ("ttl", "max_ttl", "node_timeout", "latency", "max_hold")
        }
        for key, (least, most) in BOUNDS.items():
            if not least <= times[key] <= most:
                raise self.wrong(f"{key!r} is to be {least:g} to {most:g} s, not {times[key]:g}", line)
        if 0 < times["max_ttl"] < times["ttl"]:
            raise self.wrong(f"'max_ttl' is below the ttl: {times['max_ttl']:g}", line)
        lists = {
            who: self.places(numbers, nodes, line)
            for who, numbers in self.get(table, "lists", dict, {}, line).items()
        }
        quarantine = self.get(table, "quarantine", bool, line=line) if "quarantine" in table else None
        keep = self.get(table, "keep", bool, True, line)
        return Cast(clients, nodes, keep=keep, quarantine=quarantine, lists=lists, **times)

    def places(self, numbers: Any, nodes: int, line: int) -> tuple[int, ...]:
        if not isinstance(numbers, list) or not all(isinstance(one, int) and 1 <= one <= nodes for one in numbers):
            raise self.wrong(f"nodes are numbers from 1 to {nodes}, not {numbers!r}", line)
        if not numbers or len(set(numbers)) < len(numbers):
            raise self.wrong(f"nodes are named once each, and at least one: {numbers!r}", line)
        return tuple(numbers)

    def step(self, index: int, table: Any, cast: Cast) -> Step:
        line = self.step_lines[index] if index < len(self.step_lines) else self.line_of("steps")
        if not isinstance(table, dict):
            raise self.wrong(f"a step is a table, not {table!r}", line)
        at, who = self.number(table, "at", line=line), self.get(table, "who", str, line=line)
        does, because = self.get(table, "does", str, line=line), self.get(table, "because", str, "", line)
        if at < 0:
            raise self.wrong(f"'at' is to be 0 or more, not {at:g}", line)
        verbs = self.verbs(who, cast, line)
        if does not in verbs:
            near = difflib.get_close_matches(does, verbs, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(verbs)}"
            raise self.wrong(f"{who} cannot {does!r}: {hint}", line)
        options = {key: value for key, value in table.items() if key not in ("at", "who", "does", "because")}
        self.only(options, verbs[does], f"{does!r}", line=line)
        for key in sorted(NEEDED.get(does, set()) - options.keys()):
            raise self.wrong(f"{does!r} needs {key!r}", line)
        for key in options:
            options[key] = self.option(does, key, options, cast, line)
        return Step(at, who, does, line, options, because)

    def option(self, does: str, key: str, options: dict[str, Any], cast: Cast, line: int) -> Any:
        if key in ("from", "to"):
            return self.places(options[key], cast.nodes, line)
        if key == "disk":
            if options[key] not in ("old", "empty"):
                raise self.wrong(f"'disk' is 'old' or 'empty', not {options[key]!r}", line)
            return options[key]
        value = self.number(options, key, line=line)
        if key != "by" and value <= 0:
            raise self.wrong(f"{key!r} is to be above 0, not {value:g}", line)
        if (does == "drift" and abs(value) > 0.5) or (does == "is slow" and value < 0):
            raise self.wrong(f"'by' is too much, or too little: {value:g}", line)
        return value

    def verbs(self, who: str, cast: Cast, line: int) -> dict[str, set[str]]:
        if who in cast.clients:
            return ACTS | CLIENT_FAULTS
        if who == "operator":
            return OPERATOR
        if re.fullmatch(r"nodes? \d(, \d)*", who):
            self.places([int(one) for one in re.findall(r"\d", who)], cast.nodes, line)
            return NODE_FAULTS
        raise self.wrong(f"nobody is called {who!r}: clients are {', '.join(cast.clients)}", line)

    def telling(self, table: dict[str, Any], key: str, cast: Cast, design: str | None) -> Telling:
        told = self.get(table, key, dict)
        line = self.line_of(key)
        self.only(told, {"design", "expect", "conclusion", "breaks"}, key, line)
        design = self.get(told, "design", str, design, line)
        if design not in DESIGNS:
            near = difflib.get_close_matches(design, DESIGNS, 1) or sorted(DESIGNS)
            raise self.wrong(f"no design is called {design!r}; near is {near[0]!r}", self.line_of("design", line))
        expect = tuple(self.expectation(one, cast, line) for one in self.get(told, "expect", list, line=line))
        if not expect:
            raise self.wrong(f"{key} expects nothing: nothing could be shown", self.line_of("expect", line))
        conclusion = self.get(told, "conclusion", str, line=line)
        self.placeholders(conclusion, cast, self.line_of("conclusion", line))
        return Telling(design, expect, conclusion, self.get(told, "breaks", str, "", line))

    def expectation(self, text: Any, cast: Cast, after: int) -> Expectation:
        line = next((i for i, one in enumerate(self.lines, 1) if i > after and str(text) in one), after)
        found = re.fullmatch(r"([a-z ]+?)(?: of ([A-E]))? (=|<=|>=|<|>) (\d+(?:\.\d+)?)", str(text))
        if not found:
            raise self.wrong(f"{text!r} is no expectation; write one like 'wait of B < 11'", line)
        fact, who, op, value = found.groups()
        self.fact(fact, who or "", cast, line)
        return Expectation(text, fact, who or "", op, float(value))

    def fact(self, fact: str, who: str, cast: Cast, line: int) -> None:
        if fact not in FACTS:
            near = difflib.get_close_matches(fact, FACTS, 1)
            raise self.wrong(f"no fact is called {fact!r}" + (f"; near is {near[0]!r}" if near else ""), line)
        if who and who not in cast.clients:
            raise self.wrong(f"nobody is called {who!r}", line)

    def placeholders(self, text: str, cast: Cast, line: int) -> None:
        try:
            fields = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        except ValueError as error:
            raise self.wrong(str(error), line) from None
        for name in fields:
            fact, _, who = name.partition(" of ")
            self.fact(fact, who, cast, line)
