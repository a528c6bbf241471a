"""What callers ask of the queue, as frozen values: what the front door decodes, the ledger gathers and the store runs.

Scopes and ids are converted on the way in: anything that is not a canonical UUID becomes one that owns nothing.
Bounds are the request types' business (R27); the store trusts these values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID, uuid4

import attrs

from switchboard.errors import QueueError
from switchboard.ingestion import Delivery
from switchboard.todo import NOWHERE, Ring, Todo, canonical_id


@attrs.frozen(kw_only=True)
class CreateTodo:
    """Make a todo, or return its live twin (SPEC-0003 Idempotent Enqueue and Dedup). `event_id` is what it comes from."""

    endpoint_id: UUID = attrs.field(converter=canonical_id)
    queue: str
    max_attempts: int
    title: str | None = None
    kind: str | None = None
    payload: str | None = None
    idempotency_key: str | None = None
    assignee: str | None = None
    source: str = "api"
    event_id: UUID | None = None


@attrs.frozen(kw_only=True)
class Ingest:
    """Store what came in: an event and a todo for each endpoint, in one transaction (SPEC-0002, R18).

    `payload` is None where the delivery's body itself is the payload: the text then goes to the database once.
    `quarantine` is why it is not to become a todo: then the event alone is kept, for an operator to look at (R23).
    """

    delivery: Delivery
    payload: str | None = attrs.field(repr=False)
    endpoint_ids: tuple[UUID, ...]
    max_attempts: int
    quarantine: str | None = None


@attrs.frozen(kw_only=True)
class ClaimNext:
    """Claim up to `limit` todos; `queues` empty means any queue that the endpoint may use.

    Every claimed todo gets a lease token of its own. An empty list is the store's "not found when there is no work".
    """

    endpoint_id: UUID = attrs.field(converter=canonical_id)
    owner: str
    lease_seconds: int
    queues: tuple[str, ...] = ()
    limit: int = 1


@attrs.frozen(kw_only=True)
class ClaimOne:
    """Claim this very todo, if it is claimable now."""

    endpoint_id: UUID = attrs.field(converter=canonical_id)
    todo_id: UUID = attrs.field(converter=canonical_id)
    owner: str
    lease_seconds: int
    lease_token: UUID = attrs.field(factory=uuid4)


@attrs.frozen(kw_only=True)
class HolderVerb:
    """What the holder of a claim may do with it.

    The guard (R4): a given `lease_token` must be the current claim's, a given `owner` its owner. With neither, whoever
    holds it: only the operator's twin sends that.
    """

    endpoint_id: UUID = attrs.field(converter=canonical_id)
    todo_id: UUID = attrs.field(converter=canonical_id)
    owner: str | None = None
    lease_token: UUID | None = None


@attrs.frozen(kw_only=True)
class Heartbeat(HolderVerb):
    """Extend the lease: by its own duration when `lease_seconds` is absent, never shortening it then (R6)."""

    lease_seconds: int | None = None


@attrs.frozen(kw_only=True)
class Complete(HolderVerb):
    """claimed -> done. With `then`, the following claim happens in the same commit."""

    result: str | None = None
    then: ClaimNext | None = None


@attrs.frozen(kw_only=True)
class Fail(HolderVerb):
    """claimed -> failed: parked for a backoff below the cap, dead-lettered at it (SPEC-0003 Bounded Retries)."""

    error: str | None = None


@attrs.frozen(kw_only=True)
class Release(HolderVerb):
    """claimed -> pending, the attempt kept; at the cap it dead-letters instead (R7)."""


@attrs.frozen(kw_only=True)
class Undo:
    """Take back a claim whose answer never reached its caller (R15): pending again, the attempt not counted."""

    endpoint_id: UUID
    todo_id: UUID
    lease_token: UUID


@attrs.frozen(kw_only=True)
class Retry:
    """failed -> pending on an explicit word: the attempts start again at 0 (R8)."""

    endpoint_id: UUID = attrs.field(converter=canonical_id)
    todo_id: UUID = attrs.field(converter=canonical_id)


@attrs.frozen(kw_only=True)
class Created:
    """The todo, and whether this call made it."""

    todo: Todo
    created: bool


@attrs.frozen(kw_only=True)
class IngestedFor:
    """What became of a delivery at one endpoint.

    `stored` made `todo_id`; `duplicate` made nothing, `todo_id` being the live twin or what its first delivery made;
    `quarantined` waits for an operator; `refused` found the endpoint revoked, and left nothing.
    """

    endpoint_id: UUID
    disposition: Literal["stored", "duplicate", "quarantined", "refused"]
    event_id: UUID | None = None
    todo_id: UUID | None = None


@attrs.frozen(kw_only=True)
class Ingested:
    """What became of a delivery, endpoint by endpoint, in the order of the command."""

    targets: tuple[IngestedFor, ...]


@attrs.frozen(kw_only=True)
class Claimed:
    """The todos that this call now holds, oldest first; none where there is no work."""

    todos: tuple[Todo, ...] = ()


@attrs.frozen(kw_only=True)
class Moved:
    """The todo after its transition; `then` is the claim that a completion asked for in the same commit."""

    todo: Todo
    then: Claimed | None = None


Claim = ClaimNext | ClaimOne
Held = Heartbeat | Complete | Fail | Release | Undo
Command = CreateTodo | Ingest | Claim | Held | Retry
Outcome = Created | Ingested | Claimed | Moved | QueueError


def claims_in(outcome: Outcome) -> tuple[Todo, ...]:
    """The todos that an outcome hands to its caller: what must be undone when the caller never hears of it (R15)."""
    if isinstance(outcome, Claimed):
        return outcome.todos
    if isinstance(outcome, Moved) and outcome.then is not None:
        return outcome.then.todos
    return ()


def undo_of(todo: Todo) -> Undo:
    """The command that takes this claim back; harmless when the claim has meanwhile ended, since the token guards it."""
    return Undo(endpoint_id=todo.endpoint_id, todo_id=todo.id, lease_token=todo.lease_token or NOWHERE)


def rings_of(command: Command, outcome: Outcome) -> Sequence[Ring]:
    """The rings that a committed outcome owes to those who wait: one for each transition to pending (R25, R26)."""
    if isinstance(outcome, Ingested):
        return _rings_of_ingested(command, outcome) if isinstance(command, Ingest) else ()
    if isinstance(outcome, Created):
        todo = outcome.todo if outcome.created else None
    elif isinstance(outcome, Moved) and isinstance(command, Release | Undo | Retry):
        todo = outcome.todo
    else:
        todo = None
    if todo is None or todo.state != "pending":
        return ()
    return (ring_for(todo),)


def _rings_of_ingested(command: Ingest, outcome: Ingested) -> Sequence[Ring]:
    return [
        Ring(
            endpoint_id=target.endpoint_id,
            queue=command.delivery.origin.queue,
            todo_id=target.todo_id,
            kind=command.delivery.kind,
            source=command.delivery.origin.source,
            assignee=None,
        )
        for target in outcome.targets
        if target.disposition == "stored" and target.todo_id is not None
    ]


def ring_for(todo: Todo) -> Ring:
    """The ring that announces this pending todo."""
    return Ring(
        endpoint_id=todo.endpoint_id,
        queue=todo.queue,
        todo_id=todo.id,
        kind=todo.kind,
        source=todo.source,
        assignee=todo.assignee,
    )
