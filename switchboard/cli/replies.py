"""What the operator API answers, as far as the commands show it. More fields than these are fine; other types are not."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint; `queues` None means all."""

    name: str
    id: str
    queues: tuple[str, ...] | None = None
    created_at: datetime
    revoked_at: datetime | None = None


class EndpointList(msgspec.Struct, frozen=True, kw_only=True):
    endpoints: tuple[Endpoint, ...]


class Vended(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint with its fresh credential, which is never told again."""

    endpoint: Endpoint
    credential: str


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    endpoint: Endpoint
    dead_lettered: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One claim; the one under way has neither end nor outcome."""

    attempt: int
    owner: str
    claimed_at: datetime
    ended_at: datetime | None = None
    outcome: str | None = None
    error: str | None = None


class Todo(msgspec.Struct, frozen=True, kw_only=True):
    """One todo. Payload and result are the JSON texts as they came; a row of a list has neither."""

    id: str
    endpoint_id: str
    queue: str
    status: Literal["pending", "claimed", "retrying", "dead", "done"]
    attempt: int
    max_attempts: int
    created_at: datetime
    source: str | None = None
    kind: str | None = None
    title: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: str | None = None
    owner: str | None = None
    assignee: str | None = None
    idempotency_key: str | None = None
    lease_expires_at: datetime | None = None
    next_retry_at: datetime | None = None
    updated_at: datetime | None = None
    claimed_at: datetime | None = None
    completed_at: datetime | None = None
    attempts: tuple[Attempt, ...] = ()


class TodoReply(msgspec.Struct, frozen=True, kw_only=True):
    todo: Todo


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """The todo, and whether it is new; else it is the live twin with the same key."""

    todo: Todo
    created: bool


class TodoList(msgspec.Struct, frozen=True, kw_only=True):
    todos: tuple[Todo, ...]
    next_cursor: str | None = None


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """One pull adapter."""

    name: str
    transport: str
    enabled: bool
    state: str
    endpoints: tuple[str, ...]
    queue: str
    last_poll_at: datetime | None = None
    last_message_at: datetime | None = None
    last_error: str | None = None
    consecutive_failures: int = 0
    stored: int = 0
    duplicates: int = 0
    quarantined: int = 0
    lost_at_source: int = 0
    lag: int | None = None


class AdapterReply(msgspec.Struct, frozen=True, kw_only=True):
    adapter: Adapter


class AdapterList(msgspec.Struct, frozen=True, kw_only=True):
    adapters: tuple[Adapter, ...]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What came in once; a row of a list has no headers."""

    id: str
    endpoint: str
    source: str
    adapter: str | None = None
    queue: str | None = None
    family: str
    trust_mode: str
    verified: bool
    verify_detail: str | None = None
    disposition: str
    external_id: str
    content_type: str | None = None
    size: int
    error: str | None = None
    received_at: datetime
    todo_ids: tuple[str, ...] = ()
    headers: msgspec.Raw = msgspec.Raw(b"")


class EventReply(msgspec.Struct, frozen=True, kw_only=True):
    event: Event


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    events: tuple[Event, ...]
    next_cursor: str | None = None


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook; `secrets` is how many are good."""

    name: str
    scheme: str
    endpoints: tuple[str, ...]
    revoked_endpoints: tuple[str, ...] = ()
    queue: str
    header: str | None = None
    algorithm: str | None = None
    encoding: str | None = None
    secrets: int
    created_at: datetime


class WebhookReply(msgspec.Struct, frozen=True, kw_only=True):
    webhook: Webhook


class WebhookList(msgspec.Struct, frozen=True, kw_only=True):
    webhooks: tuple[Webhook, ...]


class WebhookSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown once of a webhook that was made or rotated."""

    webhook: Webhook
    path: str | None = None
    secrets: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457, as the contract narrows it."""

    title: str
    code: str = ""
    detail: str = ""
    field: str | None = None
