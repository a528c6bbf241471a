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

from switchboard.errors import Conflict, NotFound, RateLimited
from switchboard.mcp.exchange import McpExchange
from switchboard.waiting_room import Attendant, WaitingRoom

SESSIONS_MAX: Final = 10_000
"""Of all endpoints: as many agents as the house is made for."""
SESSIONS_PER_ENDPOINT_MAX: Final = 1_000
SESSION_IDLE_SECONDS_MAX: Final = 1_800.0
"""For so long a session without a request and without a stream is kept."""
LAST_REQUESTS_SECONDS_MAX: Final = 5.0
"""What the requests under way have to come to their end, once their session ends."""
STREAM_SECONDS_MAX: Final = 5.0
"""What an event stream has to end when another takes its place."""


Discard = Callable[[str, bytes, UUID], Awaitable[None]]
"""Has the SDK forget a session: its id, and by which credential of which endpoint it was opened."""


@attrs.define(kw_only=True, eq=False)
class Session:
    """One session."""

    id: str
    attendant: Attendant
    requests: set[McpExchange] = attrs.field(factory=set)
    """Those under way."""
    stream: McpExchange | None = None
    used_at: float = attrs.field(factory=trio.current_time)
    ended: bool = False
    """It takes no requests any more. Once those under way are over, it is `gone`."""
    gone: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _unused: trio.Event = attrs.field(factory=trio.Event)

    @contextmanager
    def in_use(self, request: McpExchange) -> Iterator[None]:
        """A request of this session is under way.

        Raises `Conflict` where another one goes by its id: to the SDK they would be one, and answered as one.
        """
        if request.taken.id is not None and request.taken.id in {other.taken.id for other in self.requests}:
            raise Conflict(detail="A request with this id is under way in this session.")
        self.requests.add(request)
        self._unused = trio.Event()
        self.scope.deadline = math.inf
        try:
            yield
        finally:
            self.requests.discard(request)
            if not self.requests:
                self.used_at = trio.current_time()
                self.scope.deadline = self.used_at + SESSION_IDLE_SECONDS_MAX
                self._unused.set()

    async def take_stream(self, exchange: McpExchange) -> None:
        """This is its event stream from now on. A session has one: the client has come again, whatever became of the last."""
        before, self.stream = self.stream, exchange
        if before is not None:
            before.stop()
            with trio.move_on_after(STREAM_SECONDS_MAX):
                await before.over.wait()

    async def until_unused(self) -> None:
        """Waits for its last request, for a while."""
        with trio.move_on_after(LAST_REQUESTS_SECONDS_MAX):
            while self.requests:
                await self._unused.wait()

    def stop(self) -> None:
        """Stops whatever was asked in it."""
        for request in list(self.requests):
            request.stop()


class Sessions:
    """Every session that is open."""

    def __init__(self, *, room: WaitingRoom, discard: Discard, nursery: trio.Nursery) -> None:
        self._room = room
        self._discard = discard
        self._nursery = nursery
        self._sessions: dict[str, Session] = {}
        self._of_endpoint: dict[UUID, dict[str, Session]] = {}

    def find(self, session_id: str | None, credential_sha256: bytes) -> Session | None:
        """The session of this id, if this credential opened it. Raises `NotFound` for one that is at its end."""
        session = self._sessions.get(session_id or "")
        if session is None or session.attendant.credential_sha256 != credential_sha256:
            return None
        if session.ended:
            raise NotFound(detail="There is no such session.")
        return session

    def make_room(self, endpoint_id: UUID) -> None:
        """Another session is to be opened for this endpoint. Raises `RateLimited` where it has too many, all of them in use."""
        mine = self._of_endpoint.get(endpoint_id, {})
        if len(mine) < SESSIONS_PER_ENDPOINT_MAX:
            return
        idle = [session for session in mine.values() if not session.requests]
        if not idle:
            raise RateLimited(detail=f"This endpoint has {len(mine)} sessions in use; it may have no more.")
        self.end(min(idle, key=lambda session: session.used_at))

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

    def end(self, session: Session) -> None:
        """Ends a session: it takes no requests any more, and is gone once those under way are over."""
        session.ended = True
        session.scope.cancel()
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
            self.end(session)
            if attendant.refused:  # whoever waits is being told so (R17)
                await session.until_unused()
            # A request that the SDK is serving must not find its session gone under it.
            session.stop()
            await session.until_unused()
            await self._discard(session.id, attendant.credential_sha256, attendant.endpoint_id)
        finally:
            self._room.leave(attendant)
            self._sessions.pop(session.id, None)
            self.end(session)
            session.gone.set()
