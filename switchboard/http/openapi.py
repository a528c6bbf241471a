"""`/openapi.json`, generated from the route table and from the very types that validate requests and make replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from switchboard import VERSION
from switchboard.http.call import Route
from switchboard.http.wire import ProblemOut

_REFERENCE: Final = "#/components/schemas/{name}"
_PART: Final = re.compile(r"{(\w+)}")
_PROBLEMS: Final = {
    "400": "The body is not JSON.",
    "401": "No credential, or one that opens nothing here.",
    "403": "A queue out of the endpoint's scope.",
    "404": "Absent, foreign or malformed: the three look the same.",
    "409": "Not in the state, or not held by the caller, that this needs.",
    "413": "Too large.",
    "415": "Not a content type or encoding that is spoken here.",
    "422": "A field is wrong, unknown or missing; `field` names it.",
    "429": "Too many at this address; see Retry-After.",
    "503": "The database is away or too slow; see Retry-After, and repeat with the same idempotency key or lease token.",
}


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """An OpenAPI 3.1 document of these routes."""
    types: list[type[msgspec.Struct]] = [ProblemOut]
    for route in routes:
        types += [kind for kind in (route.body, route.query, *route.replies.values()) if kind is not None]
    kinds = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    references = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, references, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "switchboard",
            "version": VERSION,
            "description": "A durable work queue for agents. Claim a todo, keep its lease alive, complete or fail it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "agent": {"type": "http", "scheme": "bearer", "description": "An endpoint's credential, sbk_…"},
                "operator": {"type": "http", "scheme": "bearer", "description": "The operator's token, sbo_…"},
            },
        },
    }


def _operation(
    route: Route, references: dict[type[msgspec.Struct], dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-z0-9]+', '_', route.path)}".rstrip("_"),
        "parameters": _parameters(route, components),
        "responses": {
            str(status): _content(
                reply.__doc__ or "",
                route.media,
                references[reply] if route.media == "application/json" else {"type": "string", "format": "binary"},
            )
            for status, reply in route.replies.items()
        }
        | {
            status: _content(text, "application/problem+json", references[ProblemOut])
            for status, text in _PROBLEMS.items()
            if int(status) not in route.replies and _can_happen(status, route)
        },
    }
    if route.who != "anyone":
        operation["security"] = [{route.who: []}]
    if route.any_bytes:
        operation["requestBody"] = {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": references[route.body]}},
        }
    return operation


def _can_happen(status: str, route: Route) -> bool:
    """Whether this route can answer with this problem at all."""
    named = bool(_PART.findall(route.path))
    return {
        "400": route.body is not None,
        "401": route.who != "anyone" or route.any_bytes,
        "403": route.who == "agent" and route.body is not None,
        "404": named or route.who == "operator",
        "409": route.method == "POST" and (named or route.who == "operator"),
        "413": route.body is not None or route.any_bytes,
        "415": route.body is not None or route.any_bytes,
        "422": True,
        "429": route.any_bytes,
        "503": route.who != "anyone" or route.any_bytes,
    }[status]


def _parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    parts = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in _PART.findall(route.path)]
    fields = components[route.query.__name__]["properties"]
    return parts + [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields.items()]


def _content(description: str, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {media: {"schema": schema}}}
