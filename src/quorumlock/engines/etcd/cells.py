"""Small values, changed by whoever has seen their last version.

The version is the revision of etcd in which the value was set: none ever comes again. A value begins with a few
bytes by which whoever set it knows it again, should the answer be lost. The lease that a cell hangs on is its own,
and is renewed by whoever sets it.
"""

from __future__ import annotations

import os

from ...core.requests import CellGet, CellSwap
from ...core.votes import GRANTED, REFUSED, Answer, Cause
from . import words
from .keys import Keys
from .leases import Leases, seconds_of
from .talk import NOT_FOUND, Question, Refusal, Steps, Talk
from .words import Kv, Told

MARK = 8
"""Bytes by which a value is known again."""
TRIES = 3
LEAST = 10
"""Seconds; a server may have a minimum that is above what was asked for."""


class Cells:
    """The cells of a cluster, as one client sees them."""

    def __init__(self, keys: Keys, talk: Talk, leases: Leases) -> None:
        self._keys = keys
        self._talk = talk
        self._leases = leases

    def get(self, request: CellGet, until: float) -> Steps[Answer]:
        kv = yield from self._stored(request.name, until)
        if kv is None:
            return Answer(GRANTED, Cause.AGREED, 0, value=b"")
        return Answer(GRANTED, Cause.AGREED, kv.modified, value=kv.value[MARK:])

    def swap(self, request: CellSwap, until: float) -> Steps[Answer]:
        key, mark = self._keys.cell(request.name), os.urandom(MARK)
        compare = words.modified(key, request.version) if request.version else words.absent(key)
        for _ in range(TRIES):
            stored = yield from self._stored(request.name, until)
            known = 0 if stored is None else stored.modified
            if stored is not None and stored.value[:MARK] == mark:
                return Answer(GRANTED, Cause.AGREED, known)
            if known != request.version:
                return Answer(REFUSED, Cause.CHANGED, known)
            lease = yield from self._lease(stored, request.ttl_ms, until)
            then = [words.put(key, mark + request.value, lease)]
            question = Question("/v3/kv/txn", words.txn([compare], then, [words.get(key)]))
            try:
                told = Told((yield from self._talk.ask(question, until)))
            except Refusal as refusal:
                if refusal.code != NOT_FOUND:
                    raise
                continue  # its lease has just ended, and the cell with it
            if told.succeeded:
                return Answer(GRANTED, Cause.AGREED, told.revision)
            found = told.first(0)
            if found is not None and found.value[:MARK] == mark:  # it was ours: the answer to it was lost
                return Answer(GRANTED, Cause.AGREED, found.modified)
            return Answer(REFUSED, Cause.CHANGED, 0 if found is None else found.modified)
        return Answer(REFUSED, Cause.CHANGED, 0)

    def _stored(self, name: str, until: float) -> Steps[Kv | None]:
        found = yield from self._talk.ask(
            Question("/v3/kv/txn", words.txn([], [words.get(self._keys.cell(name))])), until
        )
        return Told(found).first(0)

    def _lease(self, stored: Kv | None, ttl_ms: int, until: float) -> Steps[int]:
        """The cell's own if it has one of that length, renewed; else another."""
        seconds = seconds_of(ttl_ms)
        if stored is not None and stored.lease:
            told = yield from self._talk.ask(Question("/v3/lease/keepalive", [{"ID": str(stored.lease)}]), until)
            lasts = [int(one.get("TTL", 0)) for one in told.get("results", [])]
            if lasts and seconds <= lasts[0] <= max(seconds, LEAST):
                return stored.lease
        return (yield from self._leases.grant(seconds, until))
