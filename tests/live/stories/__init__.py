"""Stories of memory lost, each playable any number of times with other timing: for tests, and for `make soak`.

A story sets a scene on real servers of its own, and lets clients loose on one lock. What they got goes into a
book, and the judge of the soak looks for leases that overlap and for fences that do not grow.
"""

from __future__ import annotations

from collections.abc import Callable

from quorumlock import NotAcquired

from .forgetting import all_restarted, restarted_empty, torn_aof
from .healing import forced_open, rolling, rolling_faster
from .old_disk import old_disk
from .outcome import Outcome, Void
from .promoting import promoted_in_place, promoted_unseen
from .stage import Stage

Story = Callable[[Stage], None]

QUARANTINE: dict[str, Story] = {
    "restarted-empty": restarted_empty,
    "torn-aof": torn_aof,
    "old-disk": old_disk,
    "promoted-in-place": promoted_in_place,
    "promoted-unseen": promoted_unseen,
    "all-restarted": all_restarted,
}
"""With quarantine on nothing overlaps; with quarantine off something must, or the story is no test."""

HEALING: dict[str, Story] = {"rolling": rolling, "rolling-faster": rolling_faster, "forced-open": forced_open}
"""A kept lease is never lost while a majority has votes; what was forced open stays open."""

STORIES = QUARANTINE | HEALING


def play(name: str, kind: str, seed: str, quarantine: bool = True) -> Outcome:
    """One round on servers of that kind."""
    with Stage(name, kind, seed, quarantine) as stage:
        try:
            STORIES[name](stage)
        except Void as reason:
            stage.outcome.void = str(reason)
        except NotAcquired as error:
            # While the scene was set: the machine was too slow for the nodes to answer in time.
            stage.outcome.void = str(error)
        except AssertionError as error:
            stage.outcome.wrong.append(str(error))
    return stage.outcome
