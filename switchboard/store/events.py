"""The operator's view of what came in: listings, raw bytes, and the way out of quarantine (R23). No agent's path comes here."""

from __future__ import annotations

from typing import Final

import attrs

from switchboard.commands import Created, CreateTodo
from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.errors import Conflict, NotFound, QueueError
from switchboard.event import Event, EventFilter
from switchboard.ingestion import payload_of
from switchboard.store.creating import create
from switchboard.store.rows import fetch, fetch_one
from switchboard.todo import canonical_id

_LIST: Final = load("events/list")
_LIST_STORED: Final = load("events/list_stored")
_LIST_DISPOSITION: Final = load("events/list_disposition")
_GET: Final = load("events/get")
_RAW: Final = load("events/raw")
_LOCK_QUARANTINED: Final = load("events/lock_quarantined")
_LOCK_FOR_REPLAY: Final = load("events/lock_for_replay")
_REPLAYED: Final = load("events/replayed")
_RELEASE: Final = load("events/release")
_DISCARD: Final = load("events/discard")


def list_events(session: Session, wanted: EventFilter) -> list[Event]:
    """A page of events, newest first."""
    statement = _LIST
    if wanted.disposition is not None:
        statement = _LIST_STORED if wanted.disposition == "stored" else _LIST_DISPOSITION
    return [Event(**row) for row in fetch(session, statement, attrs.asdict(wanted))]


def get_event(session: Session, event_id: object) -> Event:
    """One event with its headers. Raises `NotFound`."""
    row = fetch_one(session, _GET, {"id": canonical_id(event_id)})
    if row is None:
        raise NotFound(detail="There is no such event.")
    return Event(**row)


def raw_body(session: Session, event_id: object) -> tuple[bytes, str | None]:
    """The bytes that came in, and the content type they came with. Raises `NotFound`."""
    row = fetch_one(session, _RAW, {"id": canonical_id(event_id)})
    if row is None:
        raise NotFound(detail="There is no such event.")
    return row["body"], row["content_type"]


def release(session: Session, event_id: object, *, max_attempts: int) -> tuple[Event, Created]:
    """quarantined -> a todo after all, on the event's own row; onto the live todo that holds the key, if there is one.

    Raises `NotFound`; `Conflict` where it is not quarantined, its endpoint is revoked, or a live todo with another body
    holds its key: the event stays quarantined then, as it does when the database still refuses it.
    """
    row = fetch_one(session, _LOCK_QUARANTINED, {"id": canonical_id(event_id)})
    if row is None:
        raise _not_quarantined(session, event_id)
    command = CreateTodo(
        endpoint_id=row["endpoint_id"],
        queue=row["queue"] or row["source"],
        max_attempts=max_attempts,
        payload=payload_of(row["body"]),
        idempotency_key=row["external_id"],
        source=row["source"],
        event_id=row["id"],
    )
    outcome = _created(session, command)
    if not outcome.created and outcome.todo.payload != command.payload:
        raise Conflict(
            detail=f"Todo {outcome.todo.id} holds this event's key with another body: release the event once that todo is "
            "done or dead, or discard it."
        )
    disposition = "stored" if outcome.created else "duplicate"
    session.execute(
        _RELEASE,
        {
            "endpoint_id": row["endpoint_id"],
            "id": row["id"],
            "disposition": disposition,
            "todo_id": outcome.todo.id,
        },
    )
    return get_event(session, row["id"]), outcome


def replay(session: Session, event_id: object, *, max_attempts: int) -> Created:
    """A todo of a stored event once more, as its first one was; onto the live todo that holds its key, if there is one.

    Raises `NotFound`; `Conflict` where it is quarantined or discarded, or its endpoint is revoked.
    """
    row = fetch_one(session, _LOCK_FOR_REPLAY, {"id": canonical_id(event_id)})
    if row is None:
        raise NotFound(detail="There is no such event.")
    if row["disposition"] not in ("stored", "duplicate"):
        raise Conflict(detail=f"This event is {row['disposition']}: no todo was made of it that could be made once more.")
    known = row["todo_id"] is not None
    command = CreateTodo(
        endpoint_id=row["endpoint_id"],
        queue=(row["todo_queue"] if known else row["queue"]) or row["source"],
        max_attempts=row["max_attempts"] if known else max_attempts,
        title=row["title"],
        kind=row["kind"],
        payload=row["payload"] if known else payload_of(row["body"]),
        idempotency_key=row["external_id"],
        source=row["source"],
        event_id=row["id"],
    )
    created = _created(session, command)
    if created.created:
        session.execute(_REPLAYED, {"endpoint_id": row["endpoint_id"], "id": row["id"], "todo_id": created.todo.id})
    return created


def discard(session: Session, event_id: object) -> Event:
    """quarantined -> discarded. Raises `NotFound`; `Conflict` where it is not quarantined."""
    row = fetch_one(session, _DISCARD, {"id": canonical_id(event_id)})
    if row is None:
        raise _not_quarantined(session, event_id)
    return get_event(session, row["id"])


def _created(session: Session, command: CreateTodo) -> Created:
    (outcome,) = create(session, [command])
    if isinstance(outcome, Created):
        return outcome
    if isinstance(outcome, QueueError) and outcome.code != "unauthorized":
        raise outcome
    raise Conflict(detail="The endpoint of this event was revoked; it takes no more todos.")


def _not_quarantined(session: Session, event_id: object) -> Conflict:
    event = get_event(session, event_id)
    return Conflict(detail=f"This event is {event.disposition}; only a quarantined one waits for a decision.")
