"""The operator's routes around events: what came in, its raw bytes, and the way out of quarantine (R23)."""

from __future__ import annotations

from functools import partial
from typing import Final
from uuid import UUID

from switchboard.commands import ring_for
from switchboard.event import EventFilter
from switchboard.http import requests, wire
from switchboard.http.call import Call, Reply, RingBell, Transact
from switchboard.store import events, operator

RAW_MEDIA: Final = "application/octet-stream"
# A stranger's bytes: no browser may take them for a page of ours.
_RAW_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Disposition", "attachment"),
    ("Content-Security-Policy", "sandbox"),
)

NoCall = Call[requests.NoBody, requests.NoQuery]


class OperatorEvents:
    """Handlers of the operator's routes around events."""

    def __init__(self, *, transact: Transact, ring: RingBell, max_attempts: int) -> None:
        self._transact = transact
        self._ring = ring
        self._max_attempts = max_attempts

    async def list_events(self, call: Call[requests.NoBody, requests.EventsQuery]) -> Reply:
        """`GET /operator/v1/events`: newest first, a page at a time."""
        query = call.query
        endpoint_id: UUID | None = None
        if query.endpoint is not None:
            endpoint_id = (await self._transact(partial(operator.endpoint_named, name=query.endpoint))).id
        wanted = EventFilter(
            endpoint_id=endpoint_id,
            source=query.source,
            disposition=query.disposition,
            before=query.cursor,
            limit=query.limit,
        )
        found = await self._transact(lambda session: events.list_events(session, wanted))
        cursor = found[-1].id if len(found) == query.limit else None
        return Reply(content=wire.EventsReply(events=[wire.event_out(event) for event in found], next_cursor=cursor))

    async def get(self, call: NoCall) -> Reply:
        """`GET /operator/v1/events/{id}`, with its headers."""
        event = await self._transact(partial(events.get_event, event_id=call.path["id"]))
        return Reply(content=wire.EventReply(event=wire.event_out(event, whole=True)))

    async def raw(self, call: NoCall) -> Reply:
        """`GET /operator/v1/events/{id}/raw`: the bytes, and nothing else."""
        body, _ = await self._transact(partial(events.raw_body, event_id=call.path["id"]))
        return Reply(content=body, content_type=RAW_MEDIA, headers=_RAW_HEADERS)

    async def release(self, call: NoCall) -> Reply:
        """`POST /operator/v1/events/{id}/release`: a quarantined event becomes a todo after all."""
        event_id = call.path["id"]
        event, created = await self._transact(
            lambda session: events.release(session, event_id, max_attempts=self._max_attempts)
        )
        if created.created:
            self._ring(ring_for(created.todo))
        return Reply(content=wire.EventReply(event=wire.event_out(event, whole=True)))

    async def replay(self, call: NoCall) -> Reply:
        """`POST /operator/v1/events/{id}/replay`: a todo of a stored event once more."""
        event_id = call.path["id"]
        created = await self._transact(lambda session: events.replay(session, event_id, max_attempts=self._max_attempts))
        if created.created:
            self._ring(ring_for(created.todo))
        return Reply(content=wire.CreatedReply(todo=wire.todo_out(created.todo), created=created.created))

    async def discard(self, call: NoCall) -> Reply:
        """`POST /operator/v1/events/{id}/discard`: nothing is made of a quarantined event; it stays known."""
        event = await self._transact(partial(events.discard, event_id=call.path["id"]))
        return Reply(content=wire.EventReply(event=wire.event_out(event, whole=True)))
