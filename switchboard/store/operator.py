"""The operator's twins: the same verbs over every endpoint. Nothing on the agents' path may import this module.

SPEC-0003 Endpoint Ownership, Operator twins. A verb finds out whose todo it is, then runs in that endpoint's scope.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.endpoint import Endpoint
from switchboard.errors import NotFound
from switchboard.store.reading import TodoFilter, history
from switchboard.store.rows import fetch, fetch_one, todo_of
from switchboard.todo import NOWHERE, Attempt, Todo, canonical_id

_GET: Final = load("operator/get")
_ENDPOINT_OF: Final = load("operator/endpoint_of")
_ENDPOINT_NAMED: Final = load("operator/endpoint_named")
_LIST: Final = load("operator/list")
_RETRIABLE: Final = load("operator/retriable")


@attrs.frozen(kw_only=True)
class RetryFilter:
    """Which failed todos a bulk retry means; `before` is an instant of creation."""

    endpoint_id: UUID | None = None
    queue: str | None = None
    status: str | None = None
    before: datetime | None = None


def get_todo_any_endpoint(session: Session, todo_id: object) -> tuple[Todo, list[Attempt]]:
    """The todo, whoever's it is, with its history. Raises `NotFound`."""
    row = fetch_one(session, _GET, {"id": canonical_id(todo_id)})
    if row is None:
        raise NotFound
    todo = todo_of(row)
    return todo, history(session, todo)


def endpoint_of_todo(session: Session, todo_id: object) -> UUID:
    """The endpoint that a todo belongs to. Raises `NotFound`."""
    row = fetch_one(session, _ENDPOINT_OF, {"id": canonical_id(todo_id)})
    if row is None:
        raise NotFound
    return canonical_id(row["endpoint_id"])


def endpoint_named(session: Session, name: str) -> Endpoint:
    """The endpoint of this name, the live one first. Raises `NotFound`."""
    row = fetch_one(session, _ENDPOINT_NAMED, {"name": name})
    if row is None:
        raise NotFound(detail=f"There is no endpoint named {name}.")
    return Endpoint(**row)


def list_todos_any_endpoint(session: Session, endpoint_id: UUID | None, wanted: TodoFilter) -> list[Todo]:
    """A page of todos, newest first, without payloads; of one endpoint where one is given."""
    values = {
        "endpoint_id": endpoint_id,
        "queue": wanted.queue,
        "state": wanted.state,
        "status": wanted.status,
        "before": wanted.before,
        "limit": wanted.limit,
    }
    return [todo_of(row) for row in fetch(session, _LIST, values)]


def retriable_any_endpoint(
    session: Session, wanted: RetryFilter, after: UUID = NOWHERE, limit: int = 500
) -> list[tuple[UUID, UUID]]:
    """The next failed todos that a bulk retry means, as (endpoint id, todo id), in order of id after `after`."""
    values = attrs.asdict(wanted) | {"after": after, "limit": limit}
    return [(row["endpoint_id"], row["id"]) for row in fetch(session, _RETRIABLE, values)]
