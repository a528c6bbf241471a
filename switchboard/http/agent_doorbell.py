"""`GET /v1/doorbell`: an agent is told, as Server-Sent Events, that todos wait which it may claim (R25)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from switchboard.http import requests
from switchboard.http.call import Call, Reply
from switchboard.http.hearing import Hearing
from switchboard.todo import Ring
from switchboard.waiting_room import Listener

COMMENT_SECONDS: Final = 15.0
"""A word at least this often, so that proxies, and the client, know that the line is alive."""
RECONNECT_MILLISECONDS: Final = 1_000
MEDIA: Final = "text/event-stream"

# The second is nginx's word for it; others go by the first.
_HEADERS: Final = (("Cache-Control", "no-cache, no-transform"), ("X-Accel-Buffering", "no"))


class RingOut(msgspec.Struct, frozen=True, kw_only=True):
    """The `data` of one event: which todo waits, and what it is. It carries no payload."""

    todo_id: str
    queue: str
    kind: str | None
    source: str


class AgentDoorbell:
    """The handler of the event stream."""

    def __init__(self, hearing: Hearing) -> None:
        self._hearing = hearing

    async def listen(self, call: Call[requests.NoBody, requests.DoorbellQuery]) -> Reply:
        """`GET /v1/doorbell`: first what already waits, then every ring; ends at shutdown, on revoke and on rotation."""
        listener = self._hearing.attend(call.endpoint, call.credential_sha256, call.query.queue or ())
        try:
            first = await self._hearing.waiting(listener)
        except BaseException:  # whatever ends it here, a cancellation too: nobody else would take it out of the room
            self._hearing.leave(listener)
            raise
        return Reply(
            content=self._events(listener, first),
            content_type=MEDIA,
            headers=_HEADERS,
            over=lambda: self._hearing.leave(listener),
        )

    async def _events(self, listener: Listener, first: Sequence[Ring]) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % RECONNECT_MILLISECONDS + _events_of(first)
        while (pieces := await self._hearing.news(listener, _events_of, seconds_max=COMMENT_SECONDS)) is not None:
            quiet = True
            for piece in pieces:
                quiet = False
                yield piece
            if quiet:
                yield b": nothing new\n\n"
            else:
                await self._hearing.pause(listener)


def ring_out(ring: Ring) -> RingOut:
    """What is said of a todo that waits."""
    return RingOut(todo_id=str(ring.todo_id), queue=ring.queue, kind=ring.kind, source=ring.source)


def _events_of(rings: Sequence[Ring]) -> bytes:
    return b"".join(b"event: todo_ready\ndata: " + msgspec.json.encode(ring_out(ring)) + b"\n\n" for ring in rings)
