"""Create: a pending todo, or the live twin that already holds its key. SPEC-0003 Idempotent Enqueue and Dedup, R1, R2, R14."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from switchboard.commands import Created, CreateTodo, Outcome
from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.errors import Unauthorized, Unavailable
from switchboard.store.rows import Row, fetch, todos_by_ordinal
from switchboard.todo import Todo

_CREATE: Final = load("todos/create")
_LIVE_TWINS: Final = load("todos/live_twins")
_ENDPOINTS_LIVE: Final = load("endpoints/live")

# A twin may end between the insert that met it and the look that seeks it. Each round then inserts again; losing this race
# so many times in a row takes somebody who finishes and recreates the same key as fast as we can ask.
TWIN_ROUNDS_MAX: Final = 20


def create(session: Session, commands: Sequence[CreateTodo]) -> list[Outcome]:
    """Makes each todo, or finds its live twin, in request order. A create never answers "not found" (R14).

    Outcomes: `Created`; `Unauthorized` where the endpoint is revoked or was never there; `Unavailable` where a twin came
    and went `TWIN_ROUNDS_MAX` times.
    """
    outcomes: dict[int, Outcome] = {}
    firsts, folded = _fold_equal_keys(commands)
    waiting = firsts
    for _ in range(TWIN_ROUNDS_MAX):
        outcomes |= _insert(session, commands, waiting)
        waiting = [ordinal for ordinal in waiting if ordinal not in outcomes]
        if not waiting:
            break
        outcomes |= _find_twins(session, commands, waiting)
        outcomes |= _refuse_endless_scopes(session, commands, [o for o in waiting if o not in outcomes])
        waiting = [ordinal for ordinal in waiting if ordinal not in outcomes]
        if not waiting:
            break
    for ordinal in waiting:
        outcomes[ordinal] = Unavailable(detail="The todo that holds this idempotency key keeps changing. Try again.")
    for ordinal, first in folded.items():
        twin = outcomes[first]
        outcomes[ordinal] = attrs.evolve(twin, created=False) if isinstance(twin, Created) else twin
    return [outcomes[ordinal] for ordinal in range(len(commands))]


def _fold_equal_keys(commands: Sequence[CreateTodo]) -> tuple[list[int], dict[int, int]]:
    """The places that need a row of their own, and for each other place the earlier one whose key it repeats."""
    seen: dict[tuple[object, str], int] = {}
    firsts: list[int] = []
    folded: dict[int, int] = {}
    for ordinal, command in enumerate(commands):
        if command.idempotency_key is None:
            firsts.append(ordinal)
            continue
        first = seen.setdefault((command.endpoint_id, command.idempotency_key), ordinal)
        if first == ordinal:
            firsts.append(ordinal)
        else:
            folded[ordinal] = first
    return firsts, folded


def _insert(session: Session, commands: Sequence[CreateTodo], ordinals: Sequence[int]) -> dict[int, Outcome]:
    asked = [commands[ordinal] for ordinal in ordinals]
    rows = fetch(
        session,
        _CREATE,
        {
            "ordinals": list(ordinals),
            "endpoint_ids": [command.endpoint_id for command in asked],
            "queues": [command.queue for command in asked],
            "sources": [command.source for command in asked],
            "kinds": [command.kind for command in asked],
            "titles": [command.title for command in asked],
            "payloads": [command.payload for command in asked],
            "assignees": [command.assignee for command in asked],
            "caps": [command.max_attempts for command in asked],
            "keys": [command.idempotency_key for command in asked],
            "event_ids": [command.event_id for command in asked],
        },
    )
    return {row["ordinal"]: Created(todo=_fresh(commands[row["ordinal"]], row), created=True) for row in rows}


def _fresh(command: CreateTodo, row: Row) -> Todo:
    """The row that was just inserted, put together from what was sent, so that no payload travels back."""
    return Todo(
        endpoint_id=command.endpoint_id,
        id=row["id"],
        queue=command.queue,
        source=command.source,
        kind=command.kind,
        title=command.title,
        state="pending",
        payload=command.payload,
        payload_bytes=len(command.payload.encode()) if command.payload is not None else 0,
        payload_read=True,
        result_bytes=None,
        error=None,
        owner=None,
        assignee=command.assignee,
        attempt=0,
        max_attempts=command.max_attempts,
        idempotency_key=command.idempotency_key,
        event_id=command.event_id,
        lease_token=None,
        lease_expires_at=None,
        next_retry_at=None,
        created_at=row["at"],
        updated_at=row["at"],
        claimed_at=None,
        completed_at=None,
    )


def _find_twins(session: Session, commands: Sequence[CreateTodo], ordinals: Sequence[int]) -> dict[int, Outcome]:
    rows = fetch(
        session,
        _LIVE_TWINS,
        {
            "ordinals": list(ordinals),
            "endpoint_ids": [commands[ordinal].endpoint_id for ordinal in ordinals],
            "keys": [commands[ordinal].idempotency_key for ordinal in ordinals],
        },
    )
    return {ordinal: Created(todo=todo, created=False) for ordinal, todo in todos_by_ordinal(rows).items()}


def _refuse_endless_scopes(session: Session, commands: Sequence[CreateTodo], ordinals: Sequence[int]) -> dict[int, Outcome]:
    """Those whose endpoint is revoked or unknown: no round would ever insert them."""
    if not ordinals:
        return {}
    asked = sorted({commands[ordinal].endpoint_id for ordinal in ordinals})
    live = {row["id"] for row in fetch(session, _ENDPOINTS_LIVE, {"ids": asked})}
    refusal = Unauthorized(detail="This endpoint was revoked.")
    return {ordinal: refusal for ordinal in ordinals if commands[ordinal].endpoint_id not in live}
