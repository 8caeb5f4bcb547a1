"""The description of the JSON API, as OpenAPI 3.1; tests hold the API to it."""

from __future__ import annotations

from typing import Any

from .. import __version__
from .answers import BODY_MOST
from .api import EVENTS, LOCK, LOCKS
from .openapi_schemas import SCHEMAS, ref
from .parameters import described
from .settings import WebSettings

REASONS = {
    400: "a parameter or the body makes no sense",
    401: "an access token is needed, or this is not it",
    403: "not allowed: another site asks, the CSRF token is missing, or breaking was not allowed",
    408: "the body did not come to an end",
    409: "by now somebody else holds the lock",
    413: f"more than {BODY_MOST} bytes",
    415: "the body is not application/json",
    421: "the server is not known by the name in the header Host",
    429: "too many wrong access tokens",
    503: "no majority of nodes answers, or too many pages are open",
}
ALWAYS = (401, 403, 421, 429)


def document(settings: WebSettings) -> dict[str, Any]:
    """Everything that a program may ask this dashboard for."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "quorumlock dashboard",
            "version": __version__,
            "description": "Looks at the locks of a fleet. By the time you read an answer, it may have changed.",
        },
        "servers": [{"url": settings.root_path or "/"}],
        "security": [{"bearer": []}, {"session": []}],
        "paths": {
            "/api/v1/session": _get("session", "What this visitor may do", "Session"),
            "/api/v1/overview": _get("overview", "Everything in a few numbers", "Overview"),
            "/api/v1/locks": _get("locks", "Locks that are held, shared or closed", "Locks", LOCKS, 400),
            "/api/v1/lock": _get("lock", "One lock: asked of every node, and its past", "LockPage", LOCK, 400, 503),
            "/api/v1/lock/break": {"post": _break()},
            "/api/v1/nodes": _get("nodes", "Nodes, and how they were of late", "Nodes"),
            "/api/v1/events": _get("events", "What happened, old to new", "Events", EVENTS, 400),
            "/api/v1/stream": _stream(),
            "/api/v1/openapi.json": _get("openapi", "This document", None),
            "/metrics": {
                "get": {
                    "operationId": "metrics",
                    "summary": "Gauges for Prometheus",
                    "responses": {
                        "200": {
                            "description": "the text format of Prometheus",
                            "content": {"text/plain": {"schema": {"type": "string"}}},
                        },
                        **_refusals(),
                    },
                }
            },
        },
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "the access token"},
                "session": {"type": "apiKey", "in": "cookie", "name": settings.cookie},
            },
        },
    }


def _refusals(*more: int) -> dict[str, Any]:
    return {
        str(status): {
            "description": REASONS[status],
            "content": {"application/json": {"schema": ref("Error")}},
        }
        for status in sorted((*ALWAYS, *more))
    }


def _told(schema: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": "told", "content": {"application/json": {"schema": schema}}}}


def _get(name: str, summary: str, schema: str | None, parameters: Any = (), *statuses: int) -> dict[str, Any]:
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "parameters": described(parameters),
            "responses": {**_told(ref(schema) if schema else {"type": "object"}), **_refusals(*statuses)},
        }
    }


def _stream() -> dict[str, Any]:
    return {
        "get": {
            "operationId": "stream",
            "summary": "Server-sent events: first everything, then what changed",
            "responses": {
                "200": {
                    "description": "each message is a JSON object, as Update describes it",
                    "content": {"text/event-stream": {"schema": {"type": "string"}}},
                },
                **_refusals(503),
            },
        }
    }


def _break() -> dict[str, Any]:
    return {
        "operationId": "break",
        "summary": "Forces a lock open; only with --allow-break",
        "description": "Browsers must send the headers Origin and X-CSRF-Token; programs the access token.",
        "parameters": [
            {
                "name": "X-CSRF-Token",
                "in": "header",
                "required": False,
                "description": "as GET /api/v1/session tells it",
                "schema": {"type": "string"},
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref("Break")}}},
        "responses": {**_told(ref("Broken")), **_refusals(400, 408, 409, 413, 415, 503)},
    }
