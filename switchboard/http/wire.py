"""The shapes that leave the house: one struct, and one explicit function, for each. Times in UTC with `Z`, ids lower-case.

Nothing is sent because it happens to be an attribute: a new field of a todo is invisible until it stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard.adapter import AdapterRow
from switchboard.endpoint import Endpoint
from switchboard.errors import Conflict, Invalid, QueueError, TooLarge
from switchboard.event import Event
from switchboard.push.schemes import ALGORITHM_DEFAULT, ENCODING_DEFAULT, HEADER_DEFAULT
from switchboard.store.reading import QueueCounts
from switchboard.todo import Attempt, Todo
from switchboard.webhook import Webhook


class AttemptOut(Struct, frozen=True, kw_only=True):
    """One claim of a todo and how it ended: completed, failed, released, expired or revoked; null while under way."""

    attempt: int
    owner: str
    claimed_at: datetime
    ended_at: datetime | None
    outcome: str | None
    error: str | None


class TodoOut(Struct, frozen=True, kw_only=True):
    """A todo. `payload` and `result` are left out where only their sizes were read; `attempts` comes with one todo only."""

    id: UUID
    endpoint_id: UUID
    queue: str
    source: str
    kind: str | None
    title: str | None
    state: str
    status: str
    payload: Raw | UnsetType | None = UNSET
    payload_bytes: int
    result: Raw | UnsetType | None = UNSET
    result_bytes: int | None
    error: str | None
    owner: str | None
    assignee: str | None
    attempt: int
    max_attempts: int
    idempotency_key: str | None
    event_id: UUID | None
    lease_token: UUID | None
    lease_expires_at: datetime | None
    next_retry_at: datetime | None
    created_at: datetime
    updated_at: datetime
    claimed_at: datetime | None
    completed_at: datetime | None
    attempts: list[AttemptOut] | UnsetType = UNSET


class ProblemOut(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, as RFC 9457 wants it; `code` is the word to act on, `field` names what was wrong with the request."""

    type: str
    title: str
    status: int
    detail: str | UnsetType = UNSET
    code: str
    field: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    already: bool | UnsetType = UNSET
    todo_id: UUID | UnsetType = UNSET


class TodoReply(Struct, frozen=True, kw_only=True):
    """One todo."""

    todo: TodoOut


class CreatedReply(Struct, frozen=True, kw_only=True):
    """The todo, and whether this call made it; false means a live twin held the key."""

    todo: TodoOut
    created: bool


class CompletedReply(Struct, frozen=True, kw_only=True):
    """The completed todo and, where `next` was asked for, the todo claimed in the same commit, or null."""

    todo: TodoOut
    next: TodoOut | UnsetType | None = UNSET


class TodosReply(Struct, frozen=True, kw_only=True):
    """Claimed todos, oldest first; empty when there is no work."""

    todos: list[TodoOut]


class PageReply(Struct, frozen=True, kw_only=True):
    """A page of todos, newest first; `next_cursor` is null on the last one."""

    todos: list[TodoOut]
    next_cursor: UUID | None


class ResultOut(Struct, frozen=True, kw_only=True):
    """The outcome of one item of a batch: a todo, or an error."""

    todo: TodoOut | UnsetType = UNSET
    created: bool | UnsetType = UNSET
    error: ProblemOut | UnsetType = UNSET


class ResultsReply(Struct, frozen=True, kw_only=True):
    """Outcomes in the order of the items."""

    results: list[ResultOut]


class QueueOut(Struct, frozen=True, kw_only=True):
    """What one queue holds."""

    queue: str
    pending: int
    claimed: int
    retrying: int
    dead: int
    done: int
    oldest_pending_seconds: float | None


class QueuesReply(Struct, frozen=True, kw_only=True):
    """What the endpoint's queues hold, at most a second old."""

    queues: list[QueueOut]


class DefaultsOut(Struct, frozen=True, kw_only=True):
    """What the server takes where a request says nothing."""

    lease_seconds: int
    max_attempts: int
    payload_bytes: int


class WhoamiReply(Struct, frozen=True, kw_only=True):
    """Whose credential this is. `queues` null means every queue."""

    endpoint: str
    id: UUID
    queues: list[str] | None
    defaults: DefaultsOut


class EndpointOut(Struct, frozen=True, kw_only=True):
    """An endpoint. `queues` null means every queue."""

    name: str
    id: UUID
    queues: list[str] | None
    created_at: datetime
    revoked_at: datetime | None


class EndpointsReply(Struct, frozen=True, kw_only=True):
    """Every endpoint, the revoked ones too."""

    endpoints: list[EndpointOut]


class CredentialReply(Struct, frozen=True, kw_only=True):
    """An endpoint and its credential, which is shown this once."""

    endpoint: EndpointOut
    credential: str


class RevokedReply(Struct, frozen=True, kw_only=True):
    """A revoked endpoint, and how many of its open todos were dead-lettered so far."""

    endpoint: EndpointOut
    dead_lettered: int


class RetriedReply(Struct, frozen=True, kw_only=True):
    """How many todos went back to pending, and how many could not."""

    retried: int
    conflicts: int


class AdapterOut(Struct, frozen=True, kw_only=True):
    """A pull adapter. Counts are summed up over all processes; `lag` is what waits at the broker, null where it cannot say."""

    name: str
    transport: str
    enabled: bool
    state: str
    endpoints: list[str]
    queue: str
    last_poll_at: datetime | None
    last_message_at: datetime | None
    last_error: str | None
    consecutive_failures: int
    stored: int
    duplicates: int
    quarantined: int
    lost_at_source: int
    lag: int | None


class AdaptersReply(Struct, frozen=True, kw_only=True):
    """Every pull adapter, by name."""

    adapters: list[AdapterOut]


class AdapterReply(Struct, frozen=True, kw_only=True):
    """One pull adapter."""

    adapter: AdapterOut


class EventOut(Struct, frozen=True, kw_only=True):
    """What came in once. `size` is that of its body, in bytes; `headers` come with one event only."""

    id: UUID
    endpoint: str
    source: str
    adapter: str | None
    queue: str | None
    family: str
    trust_mode: str
    verified: bool
    verify_detail: str | None
    disposition: str
    external_id: str
    content_type: str | None
    size: int
    error: str | None
    received_at: datetime
    todo_ids: list[UUID]
    headers: Raw | UnsetType | None = UNSET


class EventsReply(Struct, frozen=True, kw_only=True):
    """A page of events, newest first; `next_cursor` is null on the last one."""

    events: list[EventOut]
    next_cursor: UUID | None


class EventReply(Struct, frozen=True, kw_only=True):
    """One event."""

    event: EventOut


class WebhookOut(Struct, frozen=True, kw_only=True):
    """A webhook. `secrets` is how many are good; what they are is shown once, when they are made."""

    name: str
    id: UUID
    scheme: str
    endpoints: list[str]
    revoked_endpoints: list[str]
    queue: str
    header: str | None
    algorithm: str | None
    encoding: str | None
    secrets: int
    created_at: datetime


class WebhooksReply(Struct, frozen=True, kw_only=True):
    """Every webhook, by name."""

    webhooks: list[WebhookOut]


class WebhookReply(Struct, frozen=True, kw_only=True):
    """One webhook."""

    webhook: WebhookOut


class NewWebhookReply(Struct, frozen=True, kw_only=True):
    """A new webhook, its address and its secrets; neither is shown again."""

    webhook: WebhookOut
    path: str
    secrets: list[str]


class RotatedWebhookReply(Struct, frozen=True, kw_only=True):
    """A rotated webhook: its new secrets, or its new address."""

    webhook: WebhookOut
    path: str | None
    secrets: list[str]


class TargetOut(Struct, frozen=True, kw_only=True):
    """What became of a delivery at one endpoint. `todo_id` is null where it waits in quarantine; `created` is false there, and
    where a live todo held its key.
    """

    endpoint: str
    todo_id: UUID | None
    created: bool


class AcceptedReply(Struct, frozen=True, kw_only=True):
    """A delivery that is stored."""

    verified: bool
    targets: list[TargetOut]


class ChallengeReply(Struct, frozen=True, kw_only=True):
    """The answer to a sender that asks whether anybody is here."""

    challenge: str


class RawReply(Struct, frozen=True, kw_only=True):
    """The bytes that came in, as they came."""


class DoorbellReply(Struct, frozen=True, kw_only=True):
    """Events `todo_ready`, each with `data: {"todo_id","queue","kind","source"}`: first what already waits, then every ring."""


def todo_out(todo: Todo, *, to_claimer: bool = False, attempts: Sequence[Attempt] | None = None) -> TodoOut:
    """A todo as callers see it. The lease token is for its claimer only."""
    return TodoOut(
        id=todo.id,
        endpoint_id=todo.endpoint_id,
        queue=todo.queue,
        source=todo.source,
        kind=todo.kind,
        title=todo.title,
        state=todo.state,
        status=todo.status,
        payload=_raw(todo.payload) if todo.payload_read else UNSET,
        payload_bytes=todo.payload_bytes,
        result=_raw(todo.result) if todo.payload_read or todo.result is not None else UNSET,
        result_bytes=todo.result_bytes,
        error=todo.error,
        owner=todo.owner,
        assignee=todo.assignee,
        attempt=todo.attempt,
        max_attempts=todo.max_attempts,
        idempotency_key=todo.idempotency_key,
        event_id=todo.event_id,
        lease_token=todo.lease_token if to_claimer else None,
        lease_expires_at=todo.lease_expires_at,
        next_retry_at=todo.next_retry_at,
        created_at=todo.created_at,
        updated_at=todo.updated_at,
        claimed_at=todo.claimed_at,
        completed_at=todo.completed_at,
        attempts=UNSET if attempts is None else [attempt_out(attempt) for attempt in attempts],
    )


def _raw(text: str | None) -> Raw | None:
    return None if text is None else Raw(text.encode())


def attempt_out(attempt: Attempt) -> AttemptOut:
    """One line of a todo's history."""
    return AttemptOut(
        attempt=attempt.attempt,
        owner=attempt.owner,
        claimed_at=attempt.claimed_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome,
        error=attempt.error,
    )


def problem_out(error: QueueError) -> ProblemOut:
    """An error as RFC 9457 wants it. An internal one says nothing of what it was."""
    return ProblemOut(
        type="about:blank",
        title=error.title,
        status=error.status,
        detail=UNSET if error.code == "internal" else error.detail,
        code=error.code,
        field=error.field if isinstance(error, Invalid | TooLarge) and error.field is not None else UNSET,
        state=error.state if isinstance(error, Conflict) and error.state is not None else UNSET,
        already=True if isinstance(error, Conflict) and error.already else UNSET,
        todo_id=error.todo_id if isinstance(error, Conflict) and error.todo_id is not None else UNSET,
    )


def queue_out(counts: QueueCounts) -> QueueOut:
    """What one queue holds."""
    return QueueOut(
        queue=counts.queue,
        pending=counts.pending,
        claimed=counts.claimed,
        retrying=counts.retrying,
        dead=counts.dead,
        done=counts.done,
        oldest_pending_seconds=counts.oldest_pending_seconds,
    )


def endpoint_out(endpoint: Endpoint) -> EndpointOut:
    """An endpoint as the operator sees it; its credential is nowhere to be had."""
    return EndpointOut(
        name=endpoint.name,
        id=endpoint.id,
        queues=None if endpoint.queues is None else list(endpoint.queues),
        created_at=endpoint.created_at,
        revoked_at=endpoint.revoked_at,
    )


def adapter_out(row: AdapterRow) -> AdapterOut:
    """An adapter as the operator sees it."""
    return AdapterOut(
        name=row.name,
        transport=row.transport,
        # Switched off counts at once, also before a process has noticed.
        state=row.state if row.enabled else "disabled",
        enabled=row.enabled,
        endpoints=list(row.endpoints),
        queue=row.queue,
        last_poll_at=row.last_poll_at,
        last_message_at=row.last_message_at,
        last_error=row.last_error,
        consecutive_failures=row.consecutive_failures,
        stored=row.stored,
        duplicates=row.duplicates,
        quarantined=row.quarantined,
        lost_at_source=row.lost_at_source,
        lag=row.lag,
    )


def webhook_out(webhook: Webhook) -> WebhookOut:
    """A webhook as the operator sees it; neither its address nor its secrets are to be had."""
    told = webhook.settings
    generic = webhook.scheme == "hmac"
    return WebhookOut(
        name=webhook.name,
        id=webhook.id,
        scheme=webhook.scheme,
        endpoints=list(webhook.endpoints),
        revoked_endpoints=list(webhook.revoked_endpoints),
        queue=webhook.queue,
        header=told.header or HEADER_DEFAULT if generic else None,
        algorithm=told.algorithm or ALGORITHM_DEFAULT if generic else None,
        encoding=told.encoding or ENCODING_DEFAULT if generic else None,
        secrets=len(webhook.sealed_secrets),
        created_at=webhook.created_at,
    )


def event_out(event: Event, *, whole: bool = False) -> EventOut:
    """An event as the operator sees it; `whole` with its headers."""
    return EventOut(
        id=event.id,
        endpoint=event.endpoint,
        source=event.source,
        adapter=event.adapter,
        queue=event.queue,
        family=event.family,
        trust_mode=event.trust_mode,
        verified=event.verified,
        verify_detail=event.verify_detail,
        disposition=event.disposition,
        external_id=event.external_id,
        content_type=event.content_type,
        size=event.size,
        error=event.error,
        received_at=event.received_at,
        todo_ids=[] if event.todo_id is None else [event.todo_id],
        headers=_raw(event.headers) if whole else UNSET,
    )


def encode(reply: Struct) -> bytes:
    """The bytes of a reply."""
    return msgspec.json.encode(reply)
