"""Who held a lock from when to when, put together from events."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .view import Json

MOST = 200
EVENTS_MOST = 500
"""Worth looking at, for so many holds: each is compared with all that are open."""
ENDS = ("released", "expired", "broken", "ended")


def holds(events: Iterable[Json], holders: Iterable[Json]) -> list[Json]:
    """The last holds of one lock, old to new; `events` are those of this lock, in order.

    `end` says how it ended: released, expired, broken, ended (one of the former), or None: it is held now.
    `since` is None for a hold that began before the first event, and `until` for one that is not over.
    """
    told: list[Json] = []
    open_: list[Json] = []
    for event in list(events)[-EVENTS_MOST:]:
        if _nobodys(event):
            continue
        if event["what"] == "acquired":
            for earlier in [one for one in open_ if _before(one, event)]:
                _close(open_, earlier, event["at"], "ended")  # its end was not told; it was before this
            hold = _hold(event, event["at"])
            told.append(hold)
            open_.append(hold)
        elif event["what"] in ENDS:
            ended = [one for one in open_ if _ends(event, one)]
            for one in ended:
                _close(open_, one, event["at"], event["what"])
            if not ended and event["fence"] is not None and event["what"] != "broken":
                told.append(_hold(event, None, event["at"], event["what"]))
    now = list(holders)
    for one in open_.copy():
        match = next((holder for holder in now if _same(holder, one)), None)
        if match is None:
            _close(open_, one, None, "ended")
        else:
            now.remove(match)
    told += [_hold(one, one["since"]) for one in now]
    return told[-MOST:]


def _hold(one: Json, since: float | None, until: float | None = None, end: str | None = None) -> Json:
    return {"who": one["who"], "fence": one["fence"], "since": since, "until": until, "end": end}


def _nobodys(event: Json) -> bool:
    """An attempt that won no majority: nobody held the lock by it. The journal says so at the end of the detail."""
    if event["what"] == "acquired":
        return re.search(r"(^|, )on \d+ of \d+ nodes$", event["detail"]) is not None
    return event["what"] == "released" and "given up" in event["detail"]


def _before(hold: Json, event: Json) -> bool:
    return hold["fence"] is not None and event["fence"] is not None and bool(hold["fence"] < event["fence"])


def _ends(event: Json, hold: Json) -> bool:
    if event["what"] == "broken":
        return True  # whoever had it
    return _same(event, hold)


def _same(one: Json, other: Json) -> bool:
    """The same hold? Those who share a lock have one fence; who they are tells them apart."""
    return bool(one["fence"] == other["fence"]) and (
        not one["who"] or not other["who"] or one["who"] == other["who"]
    )


def _close(open_: list[Json], hold: Json, at: float | None, end: str) -> None:
    hold["until"], hold["end"] = at, end
    open_[:] = [one for one in open_ if one is not hold]
