"""Redis lists, reliably: each item moves onto a processing list of this slot's own, and leaves it once it is stored.

LMOVE and BLMOVE are atomic, so an item is always on one list or the other: BRPOPLPUSH where the server is older than 6.2.
Items enter the list at its left, as with LPUSH; the oldest is at the right. SPEC-0002 Redis Reference Transport Modes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import structlog

from switchboard.ingestion import body_key
from switchboard.pull.redis_link import BLOCK_SECONDS_MAX, RedisLink, Refusal, Word, open_link
from switchboard.pull.redis_url import RedisPlace
from switchboard.pull.source import Batch, BatchSize, OpenSource, Received, Source
from switchboard.slot import Slots

STRAY_SLOTS_MAX: Final = 32
RECOVERED_AT_ONCE_MAX: Final = 100
"""Items taken over from a gone slot in one go; the next look takes more."""

_log = structlog.get_logger("redis_list")


@attrs.frozen(kw_only=True)
class ListSettings:
    """One list to read. `consumer` names the processing lists: `{list}:{consumer}-{slot}`."""

    adapter: str
    place: RedisPlace
    name: str
    consumer: str
    key_prefix: str


def list_source(settings: ListSettings) -> OpenSource:
    """Opens connections to one list."""

    @asynccontextmanager
    async def open_source(slots: Slots) -> AsyncIterator[Source]:
        async with open_link(settings.place, client_name=f"switchboard:{settings.adapter}") as link:
            yield _List(settings, link, slots.mine)

    return open_source


class _List:
    def __init__(self, settings: ListSettings, link: RedisLink, slot: int) -> None:
        self._settings = settings
        self._link = link
        self._processing = self._processing_list(slot)
        self._size = BatchSize()
        self._old_server = False
        self._looked_for_strays = False
        # The place in the processing list up to which this pass has come, counted from its oldest end.
        self._passed = 0
        self._handed_out = 0
        self._acknowledged = 0

    @property
    def identity(self) -> str:
        return self._link.identity

    def _processing_list(self, slot: int) -> str:
        return f"{self._settings.name}:{self._settings.consumer}-{slot}"

    async def unacknowledged(self, slots: Slots, *, from_start: bool) -> Batch:
        if from_start:
            for slot in sorted(slots.gone):
                await self._take_over(self._processing_list(slot))
            if not self._looked_for_strays:
                await self._tell_of_strays(slots)
            self._passed = 0
        else:
            # What was acknowledged since is gone from the list; what was not is stepped over.
            self._passed += max(0, self._handed_out - self._acknowledged)
        first, last = -(self._passed + self._size.messages), -(self._passed + 1)
        items = await self._link.call("LRANGE", self._processing, first, last, key=self._processing)
        self._handed_out, self._acknowledged = len(items), 0
        return self._batch(items[::-1])

    async def _take_over(self, left: str) -> None:
        """Moves what a gone slot was working on to our own processing list: one by one, so that nothing is ever nowhere."""
        while None not in await self._move(left, RECOVERED_AT_ONCE_MAX):
            pass

    async def _tell_of_strays(self, slots: Slots) -> None:
        """Items of slots that this database never heard of: of one that was lost, or of another house. Nobody works on the
        first, so the operator has to know; they are not ours to take, since somebody may work on the second.
        """
        self._looked_for_strays = True
        unknown = [slot for slot in range(1, STRAY_SLOTS_MAX + 1) if slot not in slots.live | slots.gone]
        lists = [self._processing_list(slot) for slot in unknown]
        try:
            lengths = await self._link.call_many([("LLEN", name) for name in lists], key=self._settings.name)
        except Refusal:
            return  # a user who may look at its own lists only, or a key of another type: no reason not to work
        for name, length in zip(lists, lengths, strict=True):
            if length:
                _log.warning(
                    "processing_list_of_unknown_slot",
                    adapter=self._settings.adapter,
                    list=name,
                    items=length,
                    advice=f"if no other house works on it: LMOVE {name} {self._settings.name} LEFT RIGHT, once for each item",
                )

    async def fresh(self, *, wait_seconds: float) -> Batch:
        items: list[bytes] = []
        if wait_seconds:
            first = await self._wait(min(wait_seconds, BLOCK_SECONDS_MAX))
            if first is None:
                return Batch()
            items.append(first)
        rest = self._size.messages - len(items)
        if rest:
            items += [item for item in await self._move(self._settings.name, rest) if item is not None]
        return self._batch(items)

    async def _wait(self, seconds: float) -> bytes | None:
        """The next item, already on the processing list; None when none came."""
        source, target = self._settings.name, self._processing
        words: tuple[Word, ...] = ("BLMOVE", source, target, "RIGHT", "LEFT", seconds)
        if self._old_server:
            words = ("BRPOPLPUSH", source, target, max(1, round(seconds)))
        item: bytes | None = (await self._moving([words], source))[0]
        return item

    async def _move(self, source: str, items_max: int) -> list[bytes | None]:
        """Moves up to so many items onto the processing list, oldest first; None for each that was not there."""
        words: tuple[Word, ...] = ("LMOVE", source, self._processing, "RIGHT", "LEFT")
        if self._old_server:
            words = ("RPOPLPUSH", source, self._processing)
        return await self._moving([words] * items_max, source)

    async def _moving(self, commands: list[tuple[Word, ...]], source: str) -> list[bytes | None]:
        try:
            return await self._link.call_many(commands, key=source)
        except Refusal as refusal:
            if self._old_server or not refusal.unknown_command:
                raise
        # Older than 6.2. Nothing has moved: none of these commands is known there.
        self._old_server = True
        return [None] * len(commands)

    async def acknowledge(self, receipts: Sequence[bytes]) -> None:
        self._acknowledged += len(receipts)
        if receipts:
            # From the right, where the oldest is: what was just handed out is found within a batch's length.
            removals = [("LREM", self._processing, -1, receipt) for receipt in receipts]
            await self._link.call_many(removals, key=self._processing)

    async def lag(self) -> int | None:
        waiting, working = await self._link.call_many(
            [("LLEN", self._settings.name), ("LLEN", self._processing)], key=self._settings.name
        )
        return int(waiting) + int(working)

    def _batch(self, items: Sequence[bytes]) -> Batch:
        messages = tuple(
            Received(receipt=item, key=body_key(self._settings.key_prefix, item), native_id=False, body=item) for item in items
        )
        self._size.learn(messages)
        return Batch(messages=messages)
