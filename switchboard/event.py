"""An event: what came in once, as the operator sees it. No I/O."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import attrs

Disposition = Literal["stored", "duplicate", "quarantined", "discarded"]


@attrs.frozen(kw_only=True)
class Event:
    """One event of one endpoint. `size` is that of its body in bytes; `error` says why it is quarantined."""

    id: UUID
    endpoint_id: UUID
    endpoint: str
    adapter: str | None
    queue: str | None
    source: str
    family: str
    trust_mode: str
    verified: bool
    verify_detail: str | None
    disposition: Disposition
    external_id: str
    native_id: bool
    content_type: str | None
    size: int
    error: str | None
    todo_id: UUID | None
    received_at: datetime
    headers: str | None = None


@attrs.frozen(kw_only=True)
class EventFilter:
    """Which events a listing shows: at most `limit`, newest first, older than `before`."""

    endpoint_id: UUID | None = None
    source: str | None = None
    disposition: Disposition | None = None
    before: UUID | None = None
    limit: int = 50
