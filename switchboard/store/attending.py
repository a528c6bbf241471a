"""What the doorbell asks the database for those who attend: what waits for them, and may they still be there (R17, R25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

import attrs

from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.store.rows import fetch
from switchboard.todo import Ring, canonical_id
from switchboard.waiting_room import Scope

_LOOK: Final = load("doorbell/look")
_PENDING: Final = load("doorbell/pending")
_REFUSED: Final = load("doorbell/refused")

HEADS_MAX: Final = 10_000
"""Todos that one look brings back; whoever has to wait for more of them waits for the next look, a second later."""
OVERDUE_MAX: Final = 100
"""What is due or lapsed of one endpoint that a look brings back; a sweep makes all of it pending before long."""

Credential = tuple[UUID, bytes]


@attrs.frozen(kw_only=True)
class Head:
    """A todo that waits for somebody who is here, and for how many seconds it has been pending; None: it is due, or lapsed."""

    ring: Ring
    pending_seconds: float | None


@attrs.frozen(kw_only=True)
class Seen:
    """What one look saw: todos that wait, and credentials that are no longer good. `complete`: all heads that there are."""

    heads: Sequence[Head]
    refused: Sequence[Credential]
    complete: bool


def look(session: Session, scopes: Sequence[Scope], credentials: Iterable[Credential]) -> Seen:
    """One look for everybody: one statement, however many attend."""
    given = list(credentials)
    rows = fetch(session, _LOOK, _asked(scopes, given))
    heads: list[Head] = []
    gone: list[Credential] = []
    for row in rows:
        sha256, pending_seconds = row.pop("refused"), row.pop("pending_seconds")
        if sha256 is None:
            heads.append(Head(ring=Ring(**row), pending_seconds=pending_seconds))
        else:
            gone.append((row["endpoint_id"], bytes(sha256)))
    return Seen(heads=heads, refused=gone, complete=len(heads) < HEADS_MAX)


def already_waiting(
    session: Session, endpoint_id: object, queues: tuple[str, ...] | None, owner: str, limit: int
) -> list[Ring]:
    """What an agent who attaches now would have heard: pending todos that `owner` may claim, oldest first (R25)."""
    scopes = [
        Scope(endpoint_id=canonical_id(endpoint_id), queue=queue, owner=whose, wanted=limit)
        for queue in queues or (None,)
        for whose in (None, owner)
    ]
    rings = [head.ring for head in look(session, scopes, ()).heads]
    return sorted(rings, key=lambda ring: ring.todo_id)[:limit]  # ids are of the time of their creation


def refused(session: Session, credentials: Iterable[Credential]) -> list[Credential]:
    """Which of these credentials are no longer good."""
    given = list(credentials)
    values = {"endpoint_ids": [id_ for id_, _ in given], "credentials_sha256": [sha256 for _, sha256 in given]}
    return [(row["endpoint_id"], bytes(row["credential_sha256"])) for row in fetch(session, _REFUSED, values)]


def pending(session: Session, todos: Sequence[tuple[UUID, UUID]]) -> list[Ring]:
    """Rings for those of these todos (endpoint, id) that are pending."""
    values = {"endpoint_ids": [endpoint_id for endpoint_id, _ in todos], "ids": [id_ for _, id_ in todos]}
    return [Ring(**row) for row in fetch(session, _PENDING, values)]


def _asked(scopes: Sequence[Scope], credentials: Sequence[Credential]) -> dict[str, object]:
    queues = [scope for scope in scopes if scope.owner is None and scope.queue is not None]
    anywhere = [scope for scope in scopes if scope.owner is None and scope.queue is None]
    owners = [scope for scope in scopes if scope.owner is not None]
    overdue: Counter[UUID] = Counter()
    for scope in scopes:
        if scope.owner is None and scope.waiters:
            overdue[scope.endpoint_id] += scope.waiters
    return {
        "queue_endpoints": [scope.endpoint_id for scope in queues],
        "queues": [scope.queue for scope in queues],
        "queue_wanted": [scope.wanted for scope in queues],
        "any_endpoints": [scope.endpoint_id for scope in anywhere],
        "any_wanted": [scope.wanted for scope in anywhere],
        "owner_endpoints": [scope.endpoint_id for scope in owners],
        "owners": [scope.owner for scope in owners],
        "owner_queues": [scope.queue for scope in owners],
        "owner_wanted": [scope.wanted for scope in owners],
        "overdue_endpoints": list(overdue),
        "overdue_wanted": [min(waiters, OVERDUE_MAX) for waiters in overdue.values()],
        "present_endpoints": [endpoint_id for endpoint_id, _ in credentials],
        "credentials_sha256": [sha256 for _, sha256 in credentials],
        "limit": HEADS_MAX,
    }
