"""One server of the fleet, as this client knows it, and whether it may belong to the fleet at all."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...core.health import Health
from ...core.requests import Join, Leave, Release, Request
from ...core.votes import Answer, Cause, Member, Vote
from .wire import FORMAT

logger = logging.getLogger("quorumlock")

FAREWELLS_MOST = 100
NEWS = 1.0
"""Seconds after which it says nothing any more that a node was one of this fleet."""
LOOKS = 2
"""How often a node is found without a marker before it gets one: time for the other nodes to answer."""
CLOSED = 2**53 - 1
"""The `ready_at` of a node that is closed (see join.lua)."""


_QUARANTINED = {
    "new": (
        "had no marker (never initialised, or emptied): it grants no lock for %.1f s. A fleet that was never in "
        "use is made ready at once by `quorumlock init` or Locker.init_fleet()"
    ),
    "restarted": "has restarted, or changed its role: it grants no lock for %.1f s, and then takes part by itself",
}


class NewerMarker(ValueError):
    """Written by a version of quorumlock that knows more than this one."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a node remembers of its fleet (see join.lua)."""

    ready_at: int
    format: int
    fleet: str
    nodes: int
    max_ttl_ms: int
    durable: bool
    quarantine: bool
    span_ms: int
    identity: str

    @classmethod
    def parse(cls, marker: bytes) -> Marker:
        """Raises ValueError where this version cannot read it; the third word is the format in all versions."""
        words = marker.decode("utf-8", "replace").split()
        if len(words) > 2 and words[2].isdigit() and int(words[2]) > FORMAT:
            raise NewerMarker(
                f"has a marker of format {words[2]}, and this version of quorumlock knows {FORMAT}: upgrade it"
            )
        if len(words) != 9:
            raise ValueError("has a marker that this version cannot read")
        ready_at, span_ms, format_, fleet, nodes, max_ttl_ms, durable, quarantine, identity = words
        return cls(
            int(ready_at),
            int(format_),
            fleet,
            int(nodes),
            int(max_ttl_ms),
            durable == "1",
            quarantine == "1",
            int(span_ms),
            identity,
        )

    @property
    def closed(self) -> bool:
        return self.ready_at == CLOSED

    def taken_for(self, terms: Terms) -> Member:
        """What it means to other fleets if this node becomes one of `terms`."""
        mine = (self.fleet, self.nodes) == (terms.fleet, terms.nodes)
        if self.closed and self.identity.startswith("from:"):
            _, fleet, nodes = self.identity.split(":")
            return Member(fleet, int(nodes), mine, closed=True)
        if mine and not terms.named:
            return Member("", 0, mine)  # a fleet that is known by its list is whole here
        return Member(self.fleet, self.nodes, mine)

    def differences(self, terms: Terms) -> str:
        """In which of the fleet's terms the marker and a client differ; none: the empty string."""
        pairs = [
            ("number of nodes", self.nodes, terms.nodes),
            ("quarantine", _on(self.quarantine), _on(terms.quarantine)),
            ("max_ttl", f"{self.max_ttl_ms / 1000:g} s", f"{round(terms.max_ttl * 1000) / 1000:g} s"),
            ("durable", _on(self.durable), _on(terms.durable)),
            ("node list", self.fleet, terms.fleet),
        ]
        return "; ".join(f"{what} {theirs} there, {ours} here" for what, theirs, ours in pairs if theirs != ours)


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node said of itself when it was joined (see join.lua)."""

    status: str
    marker: bytes
    now_us: int
    run_id: str
    role: str
    mode: str
    maxmemory: int
    policy: str

    @classmethod
    def parse(cls, reply: Any) -> Hello:
        """Raises ValueError or TypeError where the reply is none of join.lua's."""
        status, marker, now_us, run_id, role, mode, maxmemory, policy = reply
        return cls(
            status.decode(),
            marker,
            int(now_us),
            run_id.decode(),
            role.decode(),
            mode.decode(),
            int(maxmemory or 0),
            policy.decode(),
        )

    def quarantine_ms(self) -> int:
        """What is left of the quarantine, by the node's own clock; of a closed node, how long it would last."""
        ready_at, *rest = [*self.marker.split(), b""]
        if not ready_at.isdigit():
            return 0
        if int(ready_at) == CLOSED and rest[0].isdigit():
            return int(rest[0])
        return max(0, -(-(int(ready_at) - self.now_us) // 1000))


@dataclass(frozen=True, slots=True)
class Client:
    """A connection, as its server knows it. A server that restarts counts ids anew, so the address goes with it."""

    id: int
    address: str

    @classmethod
    def parse(cls, info: bytes) -> Client | None:
        """From CLIENT INFO."""
        facts = dict(word.split("=", 1) for word in info.decode("utf-8", "replace").split() if "=" in word)
        if not facts.get("id", "").isdigit() or not facts.get("addr"):
            return None
        return cls(int(facts["id"]), facts["addr"])


@dataclass(slots=True)
class Terms:
    """What every node of the fleet must agree on with this client."""

    fleet: str
    nodes: int
    max_ttl: float
    durable: bool
    quarantine: bool
    named: bool = False
    """Is the fleet known by a name, and not by its list?"""


@dataclass(slots=True, eq=False)
class Node:
    """A server: its label (never a password), its health, and connections that still have to be killed."""

    index: int
    label: str
    terms: Terms
    health: Health = field(default_factory=Health)
    orphans: deque[Client] = field(default_factory=deque)
    """Connections that were given up while the server still owed answers on them."""
    farewells: deque[Release | Leave] = field(default_factory=lambda: deque(maxlen=FAREWELLS_MOST))
    """What ends something and may not have reached it; said again as soon as there is a connection."""
    unanswered: int = 0
    """Connections that were given up one after another without a single answer."""
    run_id: str = ""
    met: bool = False
    confirmed_at: float = -math.inf
    """When the last request was sent that it answered as one of this fleet."""
    emptied_at: float | None = None
    """If it has no marker: when the request was sent by which it was found so."""
    misfit: bool = False
    """Did it say that it belongs to a fleet with other terms?"""
    mates: list[Node] = field(default_factory=list)
    """All nodes of the fleet, this one among them."""
    on_quarantine: Callable[[str, float], None] | None = None
    """Called with the label and the seconds left, when it is found in quarantine."""
    _warned: set[str] = field(default_factory=set)

    def missed(self, request: Request) -> None:
        """A request could not be sent, or was lost with its connection. What ends something is worth saying again.

        A release is so first of all: a ticket ends sooner by itself. One that keeps its lock closed for a while is
        not, since this node does not know for how long it has lain here (`core/owed.py` does).
        """
        if isinstance(request, Release):
            if not request.stay_ms and request not in self.farewells:
                self.farewells.append(request)
        elif isinstance(request, Leave) and len(self.farewells) < FAREWELLS_MOST // 2:
            self.farewells.append(request)

    @property
    def unreachable(self) -> bool:
        """Could it not even be connected to? (One that is only silent may yet say something.)"""
        return self.health.failures > 0 and self.health.why != Cause.SILENT.value

    def next_join(self, last: Join, looks: int, now: float) -> Join | None:
        """What to ask a node that has no marker, after having looked at it so often; None: leave it alone.

        A client with the wrong terms, or one that was left running when the fleet was changed, would take the node
        away from those who are right, and by and by a majority:

            1, 2, 3 became 1, 2, 4 · node 1 is emptied · an old client marks it, and has 1 and 3, others 2 and 4

        So others have to answer first, to what they were asked since: a majority, as nodes of this fleet (a change
        leaves no majority of them); or all that can be reached, if not as such a node, then as one that is empty,
        too. What was heard before says nothing, nor does silence. Limit: if a node that would have told of the
        change is down at that moment, it cannot.
        """
        self.misfit = False  # whatever it said before, it has forgotten
        if self.emptied_at is None:
            self.emptied_at = now
        others = [mate for mate in self.mates if mate is not self]
        if last.enter or any(mate.misfit for mate in others):
            return None
        since = max(self.emptied_at, now - NEWS)
        sure = [mate for mate in others if mate.confirmed_at >= since]
        unheard = [mate for mate in others if mate not in sure and mate.emptied_at is None and not mate.unreachable]
        if unheard and len(sure) <= len(self.mates) // 2:
            return None if looks >= LOOKS else Join()
        return Join(enter=not others or looks >= LOOKS)

    def meet(self, hello: Hello) -> Answer | None:
        """Takes note of a node that was joined; an answer, if it cannot belong to the fleet."""
        refusal = self.judge(hello)
        if refusal is not None:
            return refusal
        if hello.status == "free" and not any(mate.misfit for mate in self.mates):
            return Answer(Vote.REFUSED, Cause.QUARANTINE, detail="it has no marker: new, or emptied")
        if hello.status == "free":
            return self._refuse(
                "has no marker, and gets none of this client's while other nodes are of a fleet with other terms. "
                "Restart clients that were left running when the fleet was changed"
            )
        if hello.status == "closed":
            detail = "closed: init_fleet(force=True) has not reached every node yet; repeat it"
            return Answer(Vote.REFUSED, Cause.QUARANTINE, detail=detail)
        self.run_id = hello.run_id
        self.met = True
        self.misfit = False
        self.emptied_at = None
        left = hello.quarantine_ms() / 1000
        if left and hello.status in _QUARANTINED:
            logger.warning("%s %s", self.label, _QUARANTINED[hello.status] % left)
        if left and self.on_quarantine is not None:
            self.on_quarantine(self.label, left)
        return None

    def marked(self, hello: Hello) -> Answer:
        """What a survey finds where there is a marker."""
        try:
            marker = Marker.parse(hello.marker)
        except NewerMarker as newer:
            return self._refuse(str(newer))
        except ValueError:
            return Answer(Vote.REFUSED, Cause.HELD, detail="marked, by whom cannot be read")
        left = 0 if marker.closed else hello.quarantine_ms()
        state = f"in quarantine for {left / 1000:.1f} s more" if left else "ready"
        if marker.closed:
            state = "closed: a change of the fleet is not finished"
        member = marker.taken_for(self.terms)
        return Answer(Vote.REFUSED, Cause.HELD, wait_ms=left, detail=f"marked, {state}", member=member)

    def judge(self, hello: Hello) -> Answer | None:
        """Why this server cannot belong to this client's fleet; None if it can."""
        if hello.mode == "cluster":
            return self._refuse(
                "is a Redis Cluster node: locks over a cluster are not safe. Use N independent masters",
                Cause.UNSUPPORTED,
            )
        if hello.mode == "sentinel":
            return self._refuse("is a Sentinel, not a data node. List the masters themselves")
        if hello.run_id and hello.role != "master":
            return self._refuse(f"is a {hello.role or 'replica'}. A fleet is made of independent masters")
        for mate in self.mates:
            if mate is not self and hello.run_id and mate.run_id == hello.run_id:
                return self._refuse(f"and {mate.label} are one server: it would vote twice. List every server once")
        if hello.status == "misfit":
            self.misfit = True
            self.emptied_at = None
            return self._refuse(self._mismatch(hello.marker))
        evicts = hello.maxmemory > 0 and hello.policy not in ("", "noeviction")
        if evicts and self.terms.nodes >= 3:
            return self._refuse(
                f"may evict locks: maxmemory-policy is {hello.policy}. "
                "Set it to noeviction, or give locks a server of their own"
            )
        if evicts:
            self._warn("%s may evict locks: maxmemory-policy is %s", self.label, hello.policy)
        if not hello.run_id:
            if self.terms.quarantine:
                return self._refuse(
                    "does not let this user run INFO, so that a restart would go unnoticed. "
                    "Allow INFO (ACL: +info), or connect with quarantine=False and know the risk"
                )
            self._warn("%s does not let this user run INFO: replicas and duplicates go unnoticed", self.label)
        return None

    def _mismatch(self, marker: bytes) -> str:
        """Why a node whose marker has other terms than this client cannot belong to its fleet."""
        try:
            differ = Marker.parse(marker).differences(self.terms)
        except NewerMarker as newer:
            return str(newer)
        except ValueError:
            return "has a marker that this version cannot read; init_fleet(force=True) writes over it"
        return (
            f"belongs to a fleet with other terms ({differ}). Clients with different terms could hold one lock at "
            "the same time. Give every client the same node list and settings (fleet='name' where addresses are "
            "spelled differently); init_fleet(force=True) changes a fleet on purpose"
        )

    def _refuse(self, text: str, cause: Cause = Cause.MISFIT) -> Answer:
        return Answer(Vote.REFUSED, cause, detail=f"{self.label} {text}")

    def _warn(self, message: str, *args: object) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message, *args)


def _on(value: bool) -> str:
    return "on" if value else "off"
