"""LISTEN and NOTIFY: one connection of its own on which the processes of one database tell each other things.

What is told is a hint, and may be lost: a NOTIFY that was sent while nobody listened is gone. It never stands inside a caller's
transaction, where it would make commits queue behind one lock (measured: 2.5 to 6 times the throughput).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import psycopg
import trio
from psycopg.conninfo import make_conninfo

from switchboard.database.border import Bounds, Session, session_conninfo
from switchboard.database.failures import translate
from switchboard.database.queries import load
from switchboard.errors import Unavailable

T = TypeVar("T")

APPLICATION_NAME: Final = "switchboard relay"
ANSWER_SECONDS_MAX: Final = 3.0

_LISTEN: Final = load("notices/listen")
_FORGETFUL: Final = load("notices/forgetful")
_SEND: Final = load("notices/send")
_CHECK: Final = load("notices/check")


class Notices:
    """An open line. Each of its methods raises `Unavailable` once the connection is lost, or does not answer in time."""

    def __init__(self, session: Session, limiter: trio.CapacityLimiter, answer_seconds_max: float) -> None:
        self._session = session
        self._answer_seconds_max = answer_seconds_max
        self._limiter = limiter
        # One thread at a time uses the connection; its socket is waited for without any.
        self._turn = trio.Lock()

    async def send(self, payloads: Sequence[str]) -> None:
        """Tells all other listeners, each payload once."""
        await self._in_thread(partial(self._session.execute, _SEND, {"payloads": list(payloads)}))

    async def receive(self) -> list[str]:
        """What others told since it was asked last; waits until they do."""
        while True:
            payloads = await self._in_thread(self._arrived)
            if payloads:
                return payloads
            try:
                await trio.lowlevel.wait_readable(self._session.fileno())
            except (OSError, psycopg.Error, trio.ClosedResourceError) as exc:
                raise Unavailable(detail="The line to the other processes is closed.") from exc

    async def check(self) -> None:
        """Asks for a sign of life: a line that died silently would be waited on for ever."""
        await self._in_thread(partial(self._session.execute, _CHECK))

    def _arrived(self) -> list[str]:
        own = self._session.info.backend_pid
        return [notice.payload for notice in self._session.notifies(timeout=0) if notice.pid != own]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._turn:
            self._session.deadline = time.monotonic() + self._answer_seconds_max
            try:
                return await trio.to_thread.run_sync(work, limiter=self._limiter)
            except psycopg.Error as exc:
                raise translate(exc) from exc


@asynccontextmanager
async def open_notices(conninfo: str, bounds: Bounds) -> AsyncIterator[Notices]:
    """A line that lives as long as this block. Raises `Unavailable` where there is no connection."""
    limiter = trio.CapacityLimiter(1)
    seconds_max = min(ANSWER_SECONDS_MAX, bounds.transaction_seconds)

    def connect() -> Session:
        session = Session.connect(
            make_conninfo(session_conninfo(conninfo, bounds), application_name=APPLICATION_NAME),
            autocommit=True,
            prepare_threshold=0,
        )
        session.deadline = time.monotonic() + seconds_max
        session.execute(_FORGETFUL)
        session.execute(_LISTEN)
        return session

    try:
        session = await trio.to_thread.run_sync(connect, limiter=limiter)
    except psycopg.Error as exc:
        raise translate(exc) from exc
    try:
        yield Notices(session, limiter, seconds_max)
    finally:
        # Everybody who waits for its socket has been cancelled by now; a thread that still uses it ends at its deadline.
        session.close()
