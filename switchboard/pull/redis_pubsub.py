"""Redis pub/sub: fire and forget. What is published while nobody listens is gone, and nothing is ever delivered again.

SPEC-0002 Redis Reference Transport Modes, Pub/sub is loss-tolerant only: never select it for work that must not be lost. The
configuration refuses it without `accept_loss = true` (R20). A message that could not be stored is kept here, in memory, for
as long as the connection stands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import structlog
import trio

from switchboard.errors import BrokerError
from switchboard.ingestion import body_key
from switchboard.pull.redis_link import BLOCK_SECONDS_MAX, SOCKET_SECONDS_MAX, RedisLink, open_link
from switchboard.pull.redis_url import RedisPlace
from switchboard.pull.source import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch, OpenSource, Received, Source
from switchboard.slot import Slots

KEPT_MESSAGES_MAX: Final = 2 * BATCH_MESSAGES_MAX
"""Messages in memory that are not stored yet; while there are so many, nothing more is read."""
PING_SECONDS: Final = 5.0
GATHER_SECONDS: Final = 0.002

_log = structlog.get_logger("redis_pubsub")


@attrs.frozen(kw_only=True)
class ChannelSettings:
    """One channel to listen to."""

    adapter: str
    place: RedisPlace
    channel: str
    key_prefix: str


def pubsub_source(settings: ChannelSettings) -> OpenSource:
    """Opens subscriptions to one channel."""

    @asynccontextmanager
    async def open_source(slots: Slots) -> AsyncIterator[Source]:  # noqa: ARG001 - a subscriber has no name to keep
        async with open_link(settings.place, client_name=f"switchboard:{settings.adapter}") as link:
            await link.call("SUBSCRIBE", settings.channel, key=settings.channel)
            _log.warning("pubsub_loses_messages", adapter=settings.adapter, channel=settings.channel)
            yield _Channel(settings, link)

    return open_source


class _Channel:
    def __init__(self, settings: ChannelSettings, link: RedisLink) -> None:
        self._settings = settings
        self._link = link
        self._kept: dict[bytes, Received] = {}
        self._numbered = 0
        self._heard_at = trio.current_time()
        self._pinged = False
        self._left: list[Received] = []

    @property
    def identity(self) -> str:
        return self._link.identity

    async def unacknowledged(self, slots: Slots, *, from_start: bool) -> Batch:  # noqa: ARG002 - nobody leaves anything behind
        await trio.lowlevel.checkpoint()
        if from_start:
            self._left = list(self._kept.values())
        batch, self._left = self._left[:BATCH_MESSAGES_MAX], self._left[BATCH_MESSAGES_MAX:]
        return Batch(messages=tuple(batch))

    async def fresh(self, *, wait_seconds: float) -> Batch:
        messages: list[Received] = []
        size = 0
        wait = min(wait_seconds, BLOCK_SECONDS_MAX) or GATHER_SECONDS
        while len(messages) < BATCH_MESSAGES_MAX and size < BATCH_BYTES_MAX and len(self._kept) < KEPT_MESSAGES_MAX:
            push = await self._link.next_push(wait_seconds=wait)
            if push is None:
                break
            self._heard_at, self._pinged = trio.current_time(), False
            if push[0] == b"message":
                message = self._received(push[2])
                messages.append(message)
                size += len(message.body)
                wait = GATHER_SECONDS
        await self._keep_alive()
        return Batch(messages=tuple(messages))

    async def acknowledge(self, receipts: Sequence[bytes]) -> None:
        await trio.lowlevel.checkpoint()
        for receipt in receipts:
            self._kept.pop(receipt, None)

    async def lag(self) -> int | None:
        await trio.lowlevel.checkpoint()
        return None

    async def _keep_alive(self) -> None:
        """A subscription that has gone dead looks like a quiet one, so a quiet one is asked."""
        quiet = trio.current_time() - self._heard_at
        if quiet > SOCKET_SECONDS_MAX:
            raise BrokerError(f"SUBSCRIBE {self._settings.channel}: the server has not answered for {quiet:.0f} s")
        if quiet > PING_SECONDS and not self._pinged:
            self._pinged = True
            await self._link.send("PING")

    def _received(self, body: bytes) -> Received:
        self._numbered += 1
        receipt = b"%d" % self._numbered
        message = Received(receipt=receipt, key=body_key(self._settings.key_prefix, body), native_id=False, body=body)
        self._kept[receipt] = message
        return message
