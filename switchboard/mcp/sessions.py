"""The sessions of one run of the SDK: whose they are, how many there may be, and when they end.

A session belongs to the credential that opened it. It ends when its client says so, when that credential is no longer good
(R17), when it was left alone for long, and when its endpoint opens more of them than it may: the one left alone longest goes.
Its client then gets 404, and opens another.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import attrs
import trio

from switchboard.errors import Conflict, RateLimited
from switchboard.mcp.exchange import McpExchange
from switchboard.waiting_room import Attendant, WaitingRoom

SESSIONS_MAX: Final = 10_000
"""Of all endpoints: as many agents as the house is made for."""
SESSIONS_PER_ENDPOINT_MAX: Final = 1_000
SESSION_IDLE_SECONDS_MAX: Final = 1_800.0
"""For so long a session without a request and without a stream is kept."""
LAST_REQUESTS_SECONDS_MAX: Final = 5.0
"""What the requests of a session have to come to their own end, once its credential is no longer good."""
STREAM_SECONDS_MAX: Final = 5.0
"""What an event stream has to end when another takes its place."""


End = Callable[[str, bytes, UUID], Awaitable[None]]
"""Has the SDK end a session: its id, and by which credential of which endpoint it was opened."""


@attrs.define(kw_only=True, eq=False)
class Session:
    """One session."""

    id: str
    attendant: Attendant
    requests: int = 0
    ids: set[str] = attrs.field(factory=set)
    """Of the requests under way."""
    used_at: float = attrs.field(factory=trio.current_time)
    stream: McpExchange | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    unused: trio.Event = attrs.field(factory=trio.Event)

    @contextmanager
    def in_use(self, request_id: str | None = None) -> Iterator[None]:
        """A request of this session is under way.

        Raises `Conflict` where another one goes by its id: to the SDK they would be one, and answered as one.
        """
        if request_id is not None and request_id in self.ids:
            raise Conflict(detail="A request with this id is under way in this session.")
        mine = {request_id} if request_id is not None else set()
        self.ids |= mine
        self.requests += 1
        self.unused = trio.Event()
        self.scope.deadline = math.inf
        try:
            yield
        finally:
            self.ids -= mine
            self.requests -= 1
            if not self.requests:
                self.used_at = trio.current_time()
                self.scope.deadline = self.used_at + SESSION_IDLE_SECONDS_MAX
                self.unused.set()

    async def take_stream(self, exchange: McpExchange) -> None:
        """This is its event stream from now on. A session has one: the client has come again, whatever became of the last."""
        before, self.stream = self.stream, exchange
        if before is not None:
            before.stop()
            with trio.move_on_after(STREAM_SECONDS_MAX):
                await before.over.wait()


class Sessions:
    """Every session that is open."""

    def __init__(self, *, room: WaitingRoom, end: End, nursery: trio.Nursery) -> None:
        self._room = room
        self._end = end
        self._nursery = nursery
        self._sessions: dict[str, Session] = {}
        self._of_endpoint: dict[UUID, dict[str, Session]] = {}

    def find(self, session_id: str | None, credential_sha256: bytes) -> Session | None:
        """The session of this id, if this credential opened it."""
        session = self._sessions.get(session_id or "")
        return session if session is not None and session.attendant.credential_sha256 == credential_sha256 else None

    def make_room(self, endpoint_id: UUID) -> None:
        """Another session is to be opened for this endpoint. Raises `RateLimited` where it has too many, all of them in use."""
        mine = self._of_endpoint.get(endpoint_id, {})
        if len(mine) < SESSIONS_PER_ENDPOINT_MAX:
            return
        idle = [session for session in mine.values() if not session.requests]
        if not idle:
            raise RateLimited(detail=f"This endpoint has {len(mine)} sessions in use; it may have no more.")
        self.forget(min(idle, key=lambda session: session.used_at))

    def open(self, session_id: str, opener: McpExchange) -> None:
        """Keeps a session that the SDK has opened for this exchange."""
        if session_id in self._sessions:  # it was opened before, and its client says hello again
            return
        endpoint_id = opener.endpoint.id
        attendant = Attendant(
            endpoint_id=endpoint_id,
            credential_sha256=opener.credential_sha256,
            queues=frozenset(),
            owner=opener.endpoint.name,
        )
        session = Session(id=session_id, attendant=attendant)
        session.scope.deadline = trio.current_time() + SESSION_IDLE_SECONDS_MAX
        self._sessions[session_id] = session
        self._of_endpoint.setdefault(endpoint_id, {})[session_id] = session
        self._room.stay(attendant)
        self._nursery.start_soon(self._keep, session)

    def forget(self, session: Session) -> None:
        """Ends a session."""
        session.scope.cancel()
        self._sessions.pop(session.id, None)
        mine = self._of_endpoint.get(session.attendant.endpoint_id, {})
        mine.pop(session.id, None)
        if not mine:
            self._of_endpoint.pop(session.attendant.endpoint_id, None)

    def __len__(self) -> int:
        return len(self._sessions)

    async def _keep(self, session: Session) -> None:
        attendant = session.attendant
        try:
            with session.scope:
                await attendant.bell.wait()
                if not attendant.refused:
                    # The house closes: its requests come to an end by themselves, and the session goes with the house.
                    await trio.sleep_forever()
            if attendant.refused:
                with trio.move_on_after(LAST_REQUESTS_SECONDS_MAX):
                    while session.requests:
                        await session.unused.wait()
        finally:
            self._room.leave(attendant)
            self.forget(session)
        await self._end(session.id, attendant.credential_sha256, attendant.endpoint_id)
