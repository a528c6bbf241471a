"""Ingest: an event and a todo for each message and endpoint, or nothing twice. SPEC-0002 Store-Then-Ack Coupling; R3, R18, R23.

The events go in first: their unique index of native ids blocks a concurrent twin until it has committed, so the memory is
never read before it is complete. Todos follow, in the same statement, only for events that went in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import attrs

from switchboard.commands import Created, CreateTodo, Ingest, Ingested, IngestedFor, Outcome
from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.errors import RerunWhole
from switchboard.ingestion import Origin
from switchboard.store.creating import create
from switchboard.store.rows import fetch

_INGEST: Final = load("events/ingest")
_QUARANTINE: Final = load("events/quarantine")
_SEEN: Final = load("events/seen")
_COLLAPSE: Final = load("events/collapse")
_ENDPOINTS_LIVE: Final = load("endpoints/live")

OTHER_BYTES: Final = "this id was seen before with other bytes"
ROUNDS_MAX: Final = 3
"""A twin that commits between the note that met it and the look that seeks it costs one round more."""
PLACES_MAX: Final = 16_000
"""Events in one transaction; their ids hold the place in 14 bits."""


@attrs.frozen
class _Place:
    """One endpoint of one command: what becomes one event. `fault` set means that it is to be quarantined."""

    command: Ingest
    endpoint_id: UUID
    fault: str | None


def ingest(session: Session, commands: Sequence[Ingest]) -> list[Outcome]:
    """Stores each message for all its endpoints; an `Ingested` for each command, in order.

    A message with a native id that was seen before, with the same bytes and whatever became of it, makes nothing; with
    other bytes it is quarantined (R3). A body-hash key collapses onto a live todo only.
    """
    places = [_Place(command, endpoint_id, command.quarantine) for command in commands for endpoint_id in command.endpoint_ids]
    if len(places) > PLACES_MAX:
        raise ValueError(f"{len(places)} events are more than one transaction takes")
    results: dict[int, IngestedFor] = {}
    for _ in range(ROUNDS_MAX):
        waiting = [number for number in range(len(places)) if number not in results]
        if not waiting:
            break
        results |= _store(session, places, [number for number in waiting if places[number].fault is None])
        left = [number for number in waiting if number not in results]
        results |= _recognise(session, places, left)
    if len(results) < len(places):
        raise RerunWhole("a twin of this message keeps coming and going")
    numbers = iter(range(len(places)))
    return [Ingested(targets=tuple(results[next(numbers)] for _ in command.endpoint_ids)) for command in commands]


def _store(session: Session, places: Sequence[_Place], numbers: Sequence[int]) -> dict[int, IngestedFor]:
    """Notes new messages and makes their todos; what was seen before, or has no endpoint any more, is left out."""
    if not numbers:
        return {}
    results: dict[int, IngestedFor] = {}
    met: dict[int, UUID] = {}
    for ordinal, id_, made in session.execute(_INGEST, _columns(places, numbers)).fetchall():
        number = numbers[ordinal]
        if made:
            results[number] = IngestedFor(
                endpoint_id=places[number].endpoint_id, disposition="stored", event_id=id_, todo_id=id_
            )
        else:
            met[number] = id_
    met = {number: met[number] for number in sorted(met) if number not in results}
    return results | _collapse(session, places, list(met), met) if met else results


def _collapse(
    session: Session, places: Sequence[_Place], numbers: Sequence[int], noted: Mapping[int, UUID]
) -> dict[int, IngestedFor]:
    """Those whose key a live todo held: their events point at it. One that has ended meanwhile leaves room for a new todo."""
    outcomes = create(session, [_todo_of(places[number], noted[number]) for number in numbers])
    results: dict[int, IngestedFor] = {}
    for number, outcome in zip(numbers, outcomes, strict=True):
        if not isinstance(outcome, Created):
            # The endpoint was revoked, or the twin changed, in this very moment: the next run sees it in peace.
            raise RerunWhole(str(outcome))
        results[number] = IngestedFor(
            endpoint_id=places[number].endpoint_id,
            disposition="stored" if outcome.created else "duplicate",
            event_id=noted[number],
            todo_id=outcome.todo.id,
        )
    session.execute(
        _COLLAPSE,
        {
            "endpoint_ids": [places[number].endpoint_id for number in numbers],
            "ids": [noted[number] for number in numbers],
            "todo_ids": [results[number].todo_id for number in numbers],
            "dispositions": [results[number].disposition for number in numbers],
        },
    )
    return results


def _recognise(session: Session, places: Sequence[_Place], numbers: Sequence[int]) -> dict[int, IngestedFor]:
    """What the left ones are: seen before, of other bytes, to be quarantined anyway, or without a live endpoint."""
    if not numbers:
        return {}
    asked = sorted({places[number].endpoint_id for number in numbers})
    live = {row["id"] for row in fetch(session, _ENDPOINTS_LIVE, {"ids": asked})}
    seen = {row["ordinal"]: row for row in fetch(session, _SEEN, _identities(places, numbers))}
    results: dict[int, IngestedFor] = {}
    strange: dict[int, str] = {}
    for number in numbers:
        place, row = places[number], seen[number]
        if row["same"]:
            results[number] = IngestedFor(
                endpoint_id=place.endpoint_id, disposition="duplicate", event_id=row["id"], todo_id=row["todo_id"]
            )
        elif place.endpoint_id not in live:
            results[number] = IngestedFor(endpoint_id=place.endpoint_id, disposition="refused")
        elif place.fault is not None or row["other"]:
            strange[number] = place.fault or OTHER_BYTES
    return results | _quarantine(session, places, strange)


def _quarantine(session: Session, places: Sequence[_Place], faults: Mapping[int, str]) -> dict[int, IngestedFor]:
    """Keeps the event alone. Of equal ones in one batch only the first: the round after this one recognises the others."""
    firsts: dict[tuple[UUID, str, bytes], int] = {}
    for number in faults:
        delivery = places[number].command.delivery
        firsts.setdefault((places[number].endpoint_id, delivery.external_id, delivery.body_sha256), number)
    chosen = sorted(firsts.values())
    if not chosen:
        return {}
    return {
        row["ordinal"]: IngestedFor(
            endpoint_id=places[row["ordinal"]].endpoint_id, disposition="quarantined", event_id=row["id"]
        )
        for row in fetch(session, _QUARANTINE, _quarantined(places, chosen, faults))
    }


def _quarantined(places: Sequence[_Place], numbers: Sequence[int], faults: Mapping[int, str]) -> dict[str, object]:
    deliveries = [places[number].command.delivery for number in numbers]
    return (
        _identities(places, numbers)
        | _origins([delivery.origin for delivery in deliveries])
        | {
            "headers": [delivery.headers for delivery in deliveries],
            "bodies": [delivery.body for delivery in deliveries],
            "errors": [faults[number] for number in numbers],
        }
    )


def _or_none(column: list[str | None]) -> list[str | None] | None:
    """A column in which nothing stands need not travel: unnest makes the same of a null."""
    return column if any(text is not None for text in column) else None


def _identities(places: Sequence[_Place], numbers: Sequence[int]) -> dict[str, object]:
    deliveries = [places[number].command.delivery for number in numbers]
    return {
        "ordinals": list(numbers),
        "endpoint_ids": [places[number].endpoint_id for number in numbers],
        "external_ids": [delivery.external_id for delivery in deliveries],
        "native_ids": [delivery.native_id for delivery in deliveries],
        "hashes": [delivery.body_sha256 for delivery in deliveries],
    }


def _columns(places: Sequence[_Place], numbers: Sequence[int]) -> dict[str, object]:
    """The messages, column by column. What is the same for many goes over once, and for each message its number instead."""
    chosen = [places[number] for number in numbers]
    deliveries = [place.command.delivery for place in chosen]
    places_told: dict[_Told, int] = {}
    told_by = [places_told.setdefault(_told(place), len(places_told)) for place in chosen]
    endpoint_ids, caps, native_ids, origins = zip(*places_told, strict=True)
    return _origins(origins) | {
        "endpoint_ids": list(endpoint_ids),
        "caps": list(caps),
        "native_ids": list(native_ids),
        "origins": told_by,
        "external_ids": [delivery.external_id for delivery in deliveries],
        "headers": _or_none([delivery.headers for delivery in deliveries]),
        "bodies": [delivery.body for delivery in deliveries],
        "hashes": [delivery.body_sha256 for delivery in deliveries],
        "payloads": _or_none([place.command.payload for place in chosen]),
        "kinds": _or_none([delivery.kind for delivery in deliveries]),
        "titles": _or_none([delivery.title for delivery in deliveries]),
    }


_Told = tuple[UUID, int, bool, Origin]


def _told(place: _Place) -> _Told:
    delivery = place.command.delivery
    return place.endpoint_id, place.command.max_attempts, delivery.native_id, delivery.origin


def _origins(origins: Sequence[Origin]) -> dict[str, object]:
    return {
        "adapters": [origin.adapter for origin in origins],
        "queues": [origin.queue for origin in origins],
        "sources": [origin.source for origin in origins],
        "families": [origin.family for origin in origins],
        "trust_modes": [origin.trust_mode for origin in origins],
        "verified": [origin.verified for origin in origins],
        "verify_details": [origin.verify_detail for origin in origins],
        "content_types": [origin.content_type for origin in origins],
    }


def _todo_of(place: _Place, event_id: UUID) -> CreateTodo:
    delivery = place.command.delivery
    return CreateTodo(
        endpoint_id=place.endpoint_id,
        queue=delivery.origin.queue,
        max_attempts=place.command.max_attempts,
        payload=delivery.body.decode() if place.command.payload is None else place.command.payload,
        idempotency_key=delivery.external_id,
        source=delivery.origin.source,
        kind=delivery.kind,
        title=delivery.title,
        event_id=event_id,
    )
