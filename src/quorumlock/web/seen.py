"""Where nobody keeps a journal: what two looks at the locks tell by their difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Seen:
    """Like an entry of the journal. `ended`: released or expired; from outside nobody can tell."""

    at: float
    what: str
    name: str
    fence: int | None = None
    who: str = ""
    detail: str = ""


def noticed(before: Mapping[str, Any], after: Mapping[str, Any], now: float) -> list[Seen]:
    """What must have happened between two looks. A lock that came and went in between was never seen."""
    happened: list[Seen] = []
    for name, old in before.items():
        new = after.get(name)
        if old["holders"] and (new is None or _changed(old, new)):
            next_ = new["since"] if new is not None and new["holders"] else None
            happened.append(Seen(min(now, next_ or now), "ended", name, old["fence"], old["who"]))
    for name, new in after.items():
        known = before.get(name)
        if new["holders"] and (known is None or not known["holders"] or _changed(known, new)):
            happened.append(Seen(new["since"] or now, "acquired", name, new["fence"], new["who"]))
    return sorted(happened, key=lambda seen: seen.at)  # an end stays before the beginning that it made room for


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Does somebody else have it? Those who share a lock come and go under one fence."""
    if not new["holders"]:
        return True
    if old["state"] == new["state"] == "shared":
        return bool(old["fence"] != new["fence"])
    return bool((old["fence"], old["who"]) != (new["fence"], new["who"]))
