"""`GET /v1/doorbell`: an agent is told, as Server-Sent Events, that todos wait which it may claim (R25).

What is said is a hint: work is still only handed out by a claim. An agent that was cut off loses nothing but time, since
attaching begins with what already waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import msgspec
import trio

from switchboard.errors import SwitchboardError
from switchboard.http import requests
from switchboard.http.agent_claims import queues_in_scope
from switchboard.http.call import Call, Reply, Transact
from switchboard.store import attending
from switchboard.todo import Ring
from switchboard.waiting_room import SHOWN_MAX, Listener, Told, WaitingRoom

PIECE_BYTES_MAX: Final = 128 * 1024
"""Of an answer, sent at a time: what a client that does not read costs beside what it was told."""
COMMENT_SECONDS: Final = 15.0
"""A word at least this often, so that proxies, and the client, know that the line is alive."""
RECONNECT_MILLISECONDS: Final = 1_000
LOOK_AGAIN_SECONDS: Final = 1.0
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

    def __init__(self, *, room: WaitingRoom, transact: Transact) -> None:
        self._room = room
        self._transact = transact

    async def listen(self, call: Call[requests.NoBody, requests.DoorbellQuery]) -> Reply:
        """`GET /v1/doorbell`: first what already waits, then every ring; ends at shutdown, on revoke and on rotation."""
        endpoint = call.endpoint
        listener = Listener(
            endpoint_id=endpoint.id,
            credential_sha256=call.credential_sha256,
            queues=frozenset(queues_in_scope(endpoint, call.query.queue or ())),
            owner=endpoint.name,
            attended_at=trio.current_time(),
        )
        self._room.attend(listener)
        try:
            first = await self._waiting(listener)
        except BaseException:  # whatever ends it here, a cancellation too: nobody else would take it out of the room
            self._room.leave(listener)
            raise
        return Reply(
            content=self._events(listener, first),
            content_type=MEDIA,
            headers=_HEADERS,
            over=lambda: self._room.leave(listener),
        )

    async def _events(self, listener: Listener, first: Sequence[Ring]) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % RECONNECT_MILLISECONDS + _events_of(first)
        while not self._over(listener):
            with trio.move_on_after(COMMENT_SECONDS) as quiet:
                await listener.bell.wait()
            if quiet.cancelled_caught:
                yield b": nothing new\n\n"
                continue
            if self._over(listener):  # what it heard before is not told any more either (R17)
                return
            for piece in _pieces(listener.take()):
                yield piece
            if listener.look_again:
                listener.look_again = False
                missed = await self._look_again(listener)
                if missed:
                    yield _events_of(missed)
            with trio.move_on_after(self._room.pace_seconds()):
                await listener.sent_off.wait()

    def _over(self, listener: Listener) -> bool:
        return self._room.closed or listener.refused

    async def _look_again(self, listener: Listener) -> Sequence[Ring]:
        try:
            return await self._waiting(listener)
        except SwitchboardError:
            with trio.move_on_after(LOOK_AGAIN_SECONDS):
                await listener.sent_off.wait()
            listener.look_again = True
            listener.bell.set()
            return ()

    async def _waiting(self, listener: Listener) -> Sequence[Ring]:
        queues = tuple(listener.queues) or None
        return await self._transact(
            lambda session: attending.already_waiting(session, listener.endpoint_id, queues, listener.owner, limit=SHOWN_MAX)
        )


def _pieces(told: Sequence[Told]) -> Iterator[bytes]:
    """What was told, in words; the words of rings that many hear of are made once."""
    gathered: list[bytes] = []
    size = 0
    for some in told:
        words = some.in_words(_events_of)
        gathered.append(words)
        size += len(words)
        if size >= PIECE_BYTES_MAX:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


def _events_of(rings: Sequence[Ring]) -> bytes:
    return b"".join(
        b"event: todo_ready\ndata: "
        + msgspec.json.encode(RingOut(todo_id=str(ring.todo_id), queue=ring.queue, kind=ring.kind, source=ring.source))
        + b"\n\n"
        for ring in rings
    )
