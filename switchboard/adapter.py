"""A pull adapter as the house sees it: what it is, how it is, what has happened since it was last told. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal
from uuid import UUID

import attrs

AdapterState = Literal["running", "disabled", "waiting_for_endpoint", "backing_off"]

ENDPOINTS_PER_ADAPTER_MAX = 16


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@attrs.frozen(kw_only=True)
class Facts:
    """What the configuration says of an adapter. `enabled` is only the first value of what the database holds (R21)."""

    name: str
    transport: str
    endpoints: tuple[str, ...]
    queue: str
    enabled: bool


@attrs.frozen(kw_only=True)
class Target:
    """An endpoint that adapters write for, by its name: the live one, or that there was one and it was revoked (R18)."""

    id: UUID
    queues: tuple[str, ...] | None
    revoked: bool


@attrs.frozen(kw_only=True)
class Permission:
    """Whether an adapter may consume, for which endpoints, and if not, what it is waiting for."""

    state: AdapterState
    endpoint_ids: tuple[UUID, ...] = ()
    reason: str | None = None

    @property
    def granted(self) -> bool:
        """Whether it may consume now."""
        return self.state == "running"


@attrs.frozen(kw_only=True)
class Report:
    """How an adapter is, and what has happened since the last report: the counts are added to what the database holds."""

    name: str
    state: AdapterState
    polled: bool = False
    heard: bool = False
    last_error: str | None = None
    consecutive_failures: int = 0
    stored: int = 0
    duplicates: int = 0
    quarantined: int = 0
    lost_at_source: int = 0
    lag: int | None = None


@attrs.frozen(kw_only=True)
class AdapterRow:
    """An adapter as the database has it, summed up over all processes."""

    name: str
    transport: str
    endpoints: tuple[str, ...] = attrs.field(converter=_names)
    queue: str
    enabled: bool
    state: AdapterState
    last_poll_at: datetime | None
    last_message_at: datetime | None
    last_error: str | None
    consecutive_failures: int
    stored: int
    duplicates: int
    quarantined: int
    lost_at_source: int
    lag: int | None
