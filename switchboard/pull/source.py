"""What a broker's adapter implements, and all that the poll loop knows of it. SPEC-0002 Adapter Interface and Trust Mode.

A source reads; it never decides what becomes of a message. The loop stores a batch, and only then has the source
acknowledge exactly what was stored (SPEC-0002 Store-Then-Ack Coupling). Whatever it does not acknowledge it must be able to
hand out again: by `unacknowledged` after a failure or a restart, and to another process once this one is gone (R31).
All methods are Trio's; each may raise `BrokerError`, which ends the connection, and each may be cancelled at any point.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import attrs

from switchboard.slot import Slots

BATCH_MESSAGES_MAX: Final = 500
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""A batch is sized by the mean body of those before it; one single body may be larger."""
BATCH_MESSAGES_FIRST: Final = 16
"""The first batch is small, since nobody knows yet how large a message is."""


@attrs.frozen(kw_only=True)
class Received:
    """One message as a broker handed it out. `receipt` is what it is acknowledged by, `key` its idempotency key (R19)."""

    receipt: bytes = attrs.field(repr=False)
    key: str
    native_id: bool
    body: bytes = attrs.field(repr=False)
    headers: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class Batch:
    """What one read gave. `lost` names entries that are pending but whose bodies are gone at the source (R24)."""

    messages: tuple[Received, ...] = ()
    lost: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.messages or self.lost)


class Source(Protocol):
    """An open connection to one broker."""

    @property
    def identity(self) -> str:
        """Who the broker says that we are, for `verify_detail`; asked of the broker, never a credential."""
        ...

    async def unacknowledged(self, slots: Slots, *, from_start: bool) -> Batch:
        """The next batch of what was handed out before and never acknowledged: our own, then what the gone left behind.

        `from_start` begins a new pass; an empty batch is its end. What stays unacknowledged is not handed out twice in a
        pass, so that one bad message holds nothing up.
        """
        ...

    async def fresh(self, *, wait_seconds: float) -> Batch:
        """The next batch of new messages; empty when none came within `wait_seconds`. 0 does not wait at all."""
        ...

    async def acknowledge(self, receipts: Sequence[bytes]) -> None:
        """Tells the broker that these are stored, and nothing of any other."""
        ...

    async def lag(self) -> int | None:
        """How many messages wait at the broker, those handed out and not acknowledged included; None where it cannot say."""
        ...


class OpenSource(Protocol):
    """Connects to a broker under this process's slot; leaving the block closes the connection."""

    def __call__(self, slots: Slots) -> AbstractAsyncContextManager[Source]: ...


@attrs.define
class BatchSize:
    """How many messages to ask for, so that a batch stays below `BATCH_BYTES_MAX` if the next are like the last."""

    messages: int = BATCH_MESSAGES_FIRST

    def learn(self, batch: Sequence[Received]) -> None:
        """Looks at a batch. Grows by steps of four, shrinks at once."""
        if not batch:
            return
        mean_bytes = max(1, sum(len(message.body) + len(message.headers or "") for message in batch) // len(batch))
        fitting = max(1, BATCH_BYTES_MAX // mean_bytes)
        self.messages = min(fitting, self.messages * 4, BATCH_MESSAGES_MAX)
