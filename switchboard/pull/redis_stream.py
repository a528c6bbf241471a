"""Redis streams with a consumer group: XREADGROUP, and one XACK of exactly what was stored (SPEC-0002 Transport Modes).

The consumer carries the slot, so a process alone always has the same one, however often it starts (R31). Entries that it
was given and never acknowledged come first; then those of consumers whose slot nobody holds any more, by XAUTOCLAIM.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import structlog
import trio

from switchboard.ingestion import Fields, body_of_fields, native_key
from switchboard.pull.redis_link import BLOCK_SECONDS_MAX, RedisLink, Refusal, open_link
from switchboard.pull.redis_url import RedisPlace
from switchboard.pull.source import Batch, BatchSize, OpenSource, Received, Source
from switchboard.slot import Slots

_GROUP_LOST: Final = ("NOGROUP", "UNBLOCKED")
"""A reader that was blocked when its stream went away hears the second."""
RECREATIONS_PER_SECOND_MAX: Final = 1
_START: Final = b"0-0"

# Atomic, so that no entry can be given to the consumer between the look and the deletion: with it they would be lost.
_TIDY: Final = """
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  if consumer[2] == ARGV[2] and consumer[4] == 0 then
    return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
  end
end
return -1
"""

_log = structlog.get_logger("redis_stream")


@attrs.frozen(kw_only=True)
class StreamSettings:
    """One stream to read. `group_start` tells the entry id at which a lost group is created again (R3)."""

    adapter: str
    place: RedisPlace
    stream: str
    group: str
    consumer: str
    body_field: str
    key_prefix: str
    claim_idle_seconds: int
    group_start: Callable[[], Awaitable[str]]


def stream_source(settings: StreamSettings) -> OpenSource:
    """Opens connections to one stream."""

    @asynccontextmanager
    async def open_source(slots: Slots) -> AsyncIterator[Source]:
        async with open_link(settings.place, client_name=f"switchboard:{settings.adapter}") as link:
            yield _Stream(settings, link, slots.mine)

    return open_source


class _Stream:
    def __init__(self, settings: StreamSettings, link: RedisLink, slot: int) -> None:
        self._settings = settings
        self._link = link
        self._consumer = f"{settings.consumer}-{slot}"
        self._size = BatchSize()
        self._own_cursor: bytes | None = _START
        self._stale_cursor: bytes | None = None
        self._recreated_at = float("-inf")
        self._old_server = False

    @property
    def identity(self) -> str:
        return self._link.identity

    async def unacknowledged(self, slots: Slots, *, from_start: bool) -> Batch:
        if from_start:
            self._own_cursor, self._stale_cursor = _START, _START
        if self._own_cursor is not None:
            batch = await self._own(self._own_cursor)
            if batch:
                return batch
            self._own_cursor = None
            if not await self._strangers_left_something(slots):
                self._stale_cursor = None
        while self._stale_cursor is not None:
            batch = await self._stale(self._stale_cursor)
            if batch:
                return batch
        return Batch()

    async def _own(self, cursor: bytes) -> Batch:
        """What this consumer was given before, after `cursor`. A body that is gone comes as nil (R24)."""
        entries = await self._read(cursor, block_ms=None)
        if entries:
            self._own_cursor = entries[-1][0]
        ghosts = [entry_id for entry_id, fields in entries if fields is None]
        return await self._batch(entries, ghosts)

    async def _stale(self, cursor: bytes) -> Batch:
        """What others were given and have been silent about for `claim_idle_seconds`. It is ours after this."""
        settings = self._settings
        idle_ms = settings.claim_idle_seconds * 1000
        if self._old_server:
            return await self._stale_of_old_server(cursor, idle_ms)
        try:
            reply = await self._link.call(
                *("XAUTOCLAIM", settings.stream, settings.group, self._consumer, idle_ms, cursor),
                *("COUNT", self._size.messages),
                key=settings.stream,
            )
        except Refusal as refusal:
            if not refusal.unknown_command:
                raise
            self._old_server = True
            return await self._stale_of_old_server(cursor, idle_ms)
        following, entries, gone = reply[0], reply[1], reply[2] if len(reply) > 2 else []
        self._stale_cursor = None if following == _START else following
        entries = [entry for entry in entries if entry is not None]  # before Redis 7 a ghost is a nil among them
        return await self._batch([(entry[0], entry[1]) for entry in entries], gone)

    async def _stale_of_old_server(self, cursor: bytes, idle_ms: int) -> Batch:
        """The same before Redis 6.2: a look at who holds what, then XCLAIM, which takes only what is still as idle as that.

        A ghost that it takes comes as nil, and is found among our own at the next pass (R24).
        """
        stream, group = self._settings.stream, self._settings.group
        held = await self._link.call("XPENDING", stream, group, cursor, "+", self._size.messages, key=stream)
        self._stale_cursor = _following(held[-1][0]) if len(held) == self._size.messages else None
        stale = [entry for entry, holder, idle, _ in held if holder != self._consumer.encode() and idle >= idle_ms]
        if not stale:
            return Batch()
        entries = await self._link.call("XCLAIM", stream, group, self._consumer, idle_ms, *stale, key=stream)
        return await self._batch([(entry[0], entry[1]) for entry in entries if entry is not None], [])

    async def fresh(self, *, wait_seconds: float) -> Batch:
        block_ms = round(min(wait_seconds, BLOCK_SECONDS_MAX) * 1000) or None
        return await self._batch(await self._read(b">", block_ms=block_ms), [])

    async def acknowledge(self, receipts: Sequence[bytes]) -> None:
        if receipts:
            await self._link.call("XACK", self._settings.stream, self._settings.group, *receipts, key=self._settings.stream)

    async def lag(self) -> int | None:
        stream = self._settings.stream
        groups = await self._link.try_call("XINFO", "GROUPS", stream, key=stream)
        for group in groups or []:
            facts = _facts(group)
            if facts.get(b"name") == self._settings.group.encode():
                lag = facts.get(b"lag")  # Redis 7; nil where entries were deleted in the middle
                return None if lag is None else int(lag) + int(facts[b"pending"])
        return None

    async def _batch(self, entries: Sequence[tuple[bytes, Any]], ghosts: Sequence[bytes]) -> Batch:
        messages = tuple(self._received(entry_id, fields) for entry_id, fields in entries if fields is not None)
        self._size.learn(messages)
        lost = tuple(entry_id.decode() for entry_id in ghosts)
        if lost:
            _log.error("entries_lost_at_source", adapter=self._settings.adapter, stream=self._settings.stream, entries=lost)
            await self.acknowledge(ghosts)
        return Batch(messages=messages, lost=lost)

    def _received(self, entry_id: bytes, flat: Sequence[bytes]) -> Received:
        fields: Fields = list(zip(flat[::2], flat[1::2], strict=True))
        body, headers = body_of_fields(fields, self._settings.body_field)
        key = native_key(self._settings.key_prefix, entry_id.decode())
        return Received(receipt=entry_id, key=key, native_id=True, body=body, headers=headers)

    async def _read(self, after: bytes, *, block_ms: int | None) -> list[tuple[bytes, Any]]:
        """XREADGROUP. A group that is not there is created, and then nothing was read."""
        settings = self._settings
        block = () if block_ms is None else ("BLOCK", block_ms)
        try:
            reply = await self._link.call(
                *("XREADGROUP", "GROUP", settings.group, self._consumer, "COUNT", self._size.messages),
                *block,
                *("STREAMS", settings.stream, after),
                key=settings.stream,
            )
        except Refusal as refusal:
            if refusal.word not in _GROUP_LOST or trio.current_time() - self._recreated_at < 1 / RECREATIONS_PER_SECOND_MAX:
                raise
            await self._create_group()
            return []
        return [(entry[0], entry[1]) for entry in reply[0][1]] if reply else []

    async def _create_group(self) -> None:
        """Never at `$`: what was added before is work too, and what was stored before is recognised."""
        settings = self._settings
        start = await settings.group_start()
        try:
            await self._link.call(
                "XGROUP",
                "CREATE",
                settings.stream,
                settings.group,
                start,
                "MKSTREAM",
                key=f"{settings.stream} {settings.group}",
            )
        except Refusal as refusal:
            if refusal.word != "BUSYGROUP":  # another process was faster
                raise
        self._recreated_at = trio.current_time()
        _log.warning("group_created", adapter=settings.adapter, stream=settings.stream, group=settings.group, start=start)

    async def _strangers_left_something(self, slots: Slots) -> bool:
        """Whether a consumer that no living process stands for has pending entries; tidies the empty ones of gone slots.

        An ACL that does not let us see the consumers is no reason to leave anything behind: then we ask for everything.
        """
        settings = self._settings
        consumers = await self._link.try_call("XINFO", "CONSUMERS", settings.stream, settings.group, key=settings.stream)
        if consumers is None:
            return True
        ours = {f"{settings.consumer}-{slot}".encode() for slot in slots.live} | {self._consumer.encode()}
        gone = {f"{settings.consumer}-{slot}".encode() for slot in slots.gone} - ours
        left = False
        for facts in map(_facts, consumers):
            name = facts[b"name"]
            if name not in ours and facts[b"pending"]:
                left = True
            elif name in gone:
                await self._link.try_call("EVAL", _TIDY, 1, settings.stream, settings.group, name, key=settings.stream)
        return left


def _facts(flat: Sequence[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _following(entry_id: bytes) -> bytes:
    """The lowest id after this one."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return b"%s-%d" % (milliseconds, int(sequence) + 1)
