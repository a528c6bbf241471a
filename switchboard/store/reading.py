"""Looking without touching: one todo with its history, listings, what the queues hold.

SPEC-0003 Endpoint Ownership: every statement here has the endpoint in its WHERE clause.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import attrs

from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.store.rows import fetch, fetch_one, todo_of
from switchboard.todo import Attempt, State, Status, Todo, canonical_id

_GET: Final = load("todos/get")
_ATTEMPTS: Final = load("todos/attempts")
_LIST_ALL: Final = load("todos/list_all")
_LIST_QUEUE: Final = load("todos/list_queue")
_LIST_LIVE: Final = load("todos/list_live")
_LIST_DEAD: Final = load("todos/list_dead")
_LIST_DONE: Final = load("todos/list_done")
_QUEUE_COUNTS: Final = load("todos/queue_counts")

_STATUSES_OF: Final[dict[State, frozenset[Status]]] = {
    "pending": frozenset({"pending"}),
    "claimed": frozenset({"claimed"}),
    "done": frozenset({"done"}),
    "failed": frozenset({"retrying", "dead"}),
}
_STATE_OF: Final[dict[Status, State]] = {
    "pending": "pending",
    "claimed": "claimed",
    "retrying": "failed",
    "dead": "failed",
    "done": "done",
}


@attrs.frozen(kw_only=True)
class TodoFilter:
    """Which todos a listing shows: at most `limit`, newest first, older than `before`."""

    queue: str | None = None
    state: State | None = None
    status: Status | None = None
    before: UUID | None = None
    limit: int = 50


@attrs.frozen(kw_only=True)
class QueueCounts:
    """What one queue of an endpoint holds; the age of its oldest pending todo in seconds, None where there is none."""

    queue: str
    pending: int
    claimed: int
    retrying: int
    dead: int
    done: int
    oldest_pending_seconds: float | None


def find(session: Session, endpoint_id: object, todo_id: object) -> Todo | None:
    """The todo, whole, or None: absent, foreign, malformed and out of the endpoint's queues look alike (R16)."""
    row = fetch_one(session, _GET, {"endpoint_id": canonical_id(endpoint_id), "id": canonical_id(todo_id)})
    return None if row is None else todo_of(row)


def find_with_history(session: Session, endpoint_id: object, todo_id: object) -> tuple[Todo, list[Attempt]] | None:
    """The todo and every claim of it, oldest first; the one under way stands last, without an end."""
    todo = find(session, endpoint_id, todo_id)
    return None if todo is None else (todo, history(session, todo))


def history(session: Session, todo: Todo) -> list[Attempt]:
    """Every claim of a todo, oldest first: those that ended, then the one under way."""
    rows = fetch(session, _ATTEMPTS, {"endpoint_id": todo.endpoint_id, "id": todo.id})
    attempts = [Attempt(**row) for row in rows]
    if todo.state == "claimed" and todo.owner is not None and todo.claimed_at is not None:
        attempts.append(Attempt(attempt=todo.attempt, owner=todo.owner, claimed_at=todo.claimed_at))
    return attempts


def list_todos(session: Session, endpoint_id: object, scope: tuple[str, ...] | None, wanted: TodoFilter) -> list[Todo]:
    """A page of one endpoint's todos, newest first, without payloads. Queues outside `scope` are invisible."""
    statuses = set(_STATUSES_OF[wanted.state]) if wanted.state is not None else set(_STATE_OF)
    if wanted.status is not None:
        statuses &= {wanted.status}
    values: dict[str, object] = {
        "endpoint_id": canonical_id(endpoint_id),
        "scope": None if scope is None else list(scope),
        "queue": wanted.queue,
        "before": wanted.before,
        "limit": wanted.limit,
    }
    if len(statuses) == len(_STATE_OF):
        statements = [(_LIST_ALL if wanted.queue is None else _LIST_QUEUE, values)]
    else:
        statements = [_listing_of(status, values) for status in sorted(statuses)]
    todos = [todo_of(row) for statement, given in statements for row in fetch(session, statement, given)]
    return sorted(todos, key=lambda todo: todo.id, reverse=True)[: wanted.limit]


def _listing_of(status: Status, values: dict[str, object]) -> tuple[bytes, dict[str, object]]:
    if status == "done":
        return _LIST_DONE, values
    if status == "dead":
        return _LIST_DEAD, values
    return _LIST_LIVE, values | {"state": _STATE_OF[status]}


def count_queues(session: Session, endpoint_id: object, scope: tuple[str, ...] | None) -> list[QueueCounts]:
    """What each queue of the endpoint holds. Reads its whole history: ask at most once a second."""
    values = {"endpoint_id": canonical_id(endpoint_id), "scope": None if scope is None else list(scope)}
    return [QueueCounts(**row) for row in fetch(session, _QUEUE_COUNTS, values)]
