"""Explicit retry: failed -> pending on somebody's word, the attempts counted from 0 again (R8)."""

from __future__ import annotations

from typing import Final

from psycopg.errors import UniqueViolation

from switchboard.commands import Moved, Outcome, Retry
from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.errors import Conflict, NotFound
from switchboard.store.reading import find
from switchboard.store.rows import fetch_one, todo_of

_RETRY: Final = load("todos/retry")
_TWIN_OF: Final = load("todos/twin_of")


def retry(session: Session, command: Retry) -> Outcome:
    """`Moved`; `NotFound`; `Conflict` where it is not failed, or where another live todo holds its key, which is named."""
    place = {"endpoint_id": command.endpoint_id, "id": command.todo_id}
    try:
        with session.transaction():  # a savepoint: a twin that commits at this very moment ends only this statement
            row = fetch_one(session, _RETRY, place)
    except UniqueViolation:
        row = None
    if row is not None:
        return Moved(todo=todo_of(row))
    todo = find(session, command.endpoint_id, command.todo_id)
    if todo is None:
        return NotFound()
    if todo.state != "failed":
        return Conflict(detail=f"This todo is {todo.state}; only a failed one can be retried.", state=todo.state)
    twin = fetch_one(session, _TWIN_OF, place)
    if twin is not None:
        return Conflict(
            detail=f"Todo {twin['id']} is live and holds the same idempotency key.", state=todo.state, todo_id=twin["id"]
        )
    return Conflict(detail="This todo cannot be retried: its endpoint was revoked, or it has just changed.", state=todo.state)
