"""No update is lost at a resource that was entered before it was read. Whatever else went wrong: never excused."""

from __future__ import annotations

from ..ledger import Entry
from .base import Checker


class Updates(Checker):
    name = "updates"

    def wrote(self, entry: Entry) -> None:
        if entry.entered and entry.lost:
            self.complain(
                f"{entry.resource}: {entry.who} (fence {entry.fence}) had read {entry.read} and found {entry.found}"
                ": an update is lost"
            )
