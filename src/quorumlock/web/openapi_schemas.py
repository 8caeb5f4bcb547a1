"""The shapes of what the JSON API takes and tells. Nothing else may be in an answer: a token would be noticed."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def shape(**fields: Schema) -> Schema:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def maybe(kind: str, **more: Any) -> Schema:
    return {"type": [kind, "null"], **more}


TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
FENCE = maybe("integer", minimum=0)
STATE: Schema = {"type": "string", "enum": ["free", "held", "shared", "closed", "contested"]}
WHAT: Schema = {"type": "string", "enum": ["acquired", "released", "ended", "expired", "broken", "refused"]}
END: Schema = {"type": ["string", "null"], "enum": ["released", "ended", "expired", "broken", None]}
NODE_STATE: Schema = {"type": "string", "enum": ["ready", "quarantined", "down", "misfit"]}
RATES = shape(acquired=maybe("number"), ended=maybe("number"), lost=maybe("number"))
BEATS = listed(ref("Beat"))

HEADING: dict[str, Schema] = {
    "at": {**SECONDS, "description": "when the fleet was looked at, in seconds since 1970"},
    "since": {**SECONDS, "description": "when the dashboard was started"},
    "journal": {**FLAG, "description": "is there a journal? If not, events are what the dashboard saw itself"},
    "problem": {**TEXT, "description": "what could not be learnt, and why; empty: nothing"},
}

SCHEMAS: dict[str, Schema] = {
    "Error": shape(error=TEXT),
    "Session": shape(version=TEXT, can_break=FLAG, login=FLAG, every=SECONDS, csrf=maybe("string")),
    "Beat": shape(at=SECONDS, held=COUNT, waiting=COUNT, acquired=COUNT, ended=COUNT, lost=COUNT),
    "Overview": shape(
        **HEADING,
        locks=COUNT,
        states=shape(held=COUNT, shared=COUNT, closed=COUNT, contested=COUNT),
        waiting=COUNT,
        nodes={"type": "object", "propertyNames": NODE_STATE, "additionalProperties": COUNT},
        rates=RATES,
        beats=BEATS,
        lost=listed(ref("Event")),
    ),
    "Row": shape(
        name=TEXT,
        state=STATE,
        kind=maybe("string"),
        who=TEXT,
        where=maybe("string"),
        since=maybe("number"),
        fence=FENCE,
        note=maybe("string"),
        holders=COUNT,
        waiting=COUNT,
    ),
    "Locks": shape(**HEADING, total=COUNT, matching=COUNT, cut=FLAG, locks=listed(ref("Row"))),
    "Lock": shape(
        name=TEXT,
        state=STATE,
        kind=maybe("string"),
        holders=listed(
            shape(
                who=TEXT,
                where=maybe("string"),
                since=maybe("number"),
                remaining=NUMBER,
                fence=FENCE,
                note=maybe("string"),
            )
        ),
        waiters=listed(shape(who=TEXT, shares=FLAG)),
        nodes=listed(shape(node=TEXT, says=TEXT, remaining=NUMBER, fence=FENCE, holder=maybe("string"))),
    ),
    "Hold": shape(who=TEXT, fence=FENCE, since=maybe("number"), until=maybe("number"), end=END),
    "LockPage": shape(**HEADING, lock=ref("Lock"), timeline=listed(ref("Hold")), events=listed(ref("Event"))),
    "Node": shape(
        node=TEXT,
        state=NODE_STATE,
        detail=TEXT,
        role=maybe("string"),
        server=maybe("string"),
        version=maybe("string"),
        latency=maybe("number"),
        clock_offset=maybe("number"),
        quarantine=SECONDS,
        latencies=listed(maybe("number")),
    ),
    "Nodes": shape(**HEADING, nodes=listed(ref("Node"))),
    "Event": shape(id=COUNT, at=NUMBER, what=WHAT, name=TEXT, fence=FENCE, who=TEXT, detail=TEXT),
    "Events": shape(**HEADING, events=listed(ref("Event"))),
    "Break": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 1024},
            "fence": {
                **FENCE,
                "description": "as it was seen, 0 for nobody, null for who has none: no other is broken",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    "Broken": shape(broken=FLAG, was=ref("Lock")),
    "Update": shape(
        version=COUNT,
        full={**FLAG, "description": "everything, not only what changed"},
        now=SECONDS,
        started=SECONDS,
        journal=FLAG,
        problem=TEXT,
        cut={**FLAG, "description": "there are more locks than are shown"},
        locks=listed(ref("Row")),
        gone=listed(TEXT),
        nodes=listed(ref("Node")),
        beats=BEATS,
        events=listed(ref("Event")),
        rates=RATES,
    ),
}
