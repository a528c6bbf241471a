"""The border between async code, which never holds a connection, and the store, which blocks. It has one method.

One call is one worker thread is one transaction. The limiters have as many tokens as there are connections, so callers
queue in Trio, where waiting is fair and cancellable. A thread cannot be cancelled, so every call is bounded three times:
`statement_timeout` and `lock_timeout` on the server, and a deadline of our own around the whole transaction, since nothing on
the server bounds COMMIT, or a server that has stopped answering.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import attrs
import psycopg
import structlog
import trio
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from switchboard.database.failures import first_line, says_away, translate, unusable_afterwards
from switchboard.errors import OutcomeUnknown, Unavailable

T = TypeVar("T")
Capacity = Literal["callers", "holders", "vital"]

CONNECT_SECONDS_MAX: Final = 3
STATEMENT_SECONDS_MAX: Final = 5.0
LOCK_SECONDS_MAX: Final = 3.0
TRANSACTION_SECONDS_MAX: Final = 8.0
TOKEN_WAIT_SECONDS_MAX: Final = 5.0
_LOOK_SECONDS: Final = 0.1

HOLDER_CONNECTIONS: Final = 2
"""Kept for heartbeats and the holder's other verbs: no flood of claims may cost a worker its lease."""
VITAL_CONNECTIONS: Final = 2
"""Kept for credentials and health, so that the house can say how it is while every other connection is busy."""

# Few plans possible: this program's statements all have one sensible plan, through an index, and the statistics of a queue
# table are always stale. A plan that was prepared while the table was empty must not scan it once it holds a million rows.
_PLANNER: Final = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"

_log = structlog.get_logger("database")


@attrs.frozen(kw_only=True)
class Bounds:
    """How long things may take, in seconds; all shorter than the shutdown grace (rule 2 of the house)."""

    statement_seconds: float
    lock_seconds: float
    transaction_seconds: float

    @classmethod
    def within(cls, grace_seconds: float) -> Bounds:
        """The usual bounds, or smaller ones where the grace is shorter still."""
        return cls(
            statement_seconds=min(STATEMENT_SECONDS_MAX, grace_seconds * 0.4),
            # twice: what waits behind a batch that is stuck on a lock still gets its answer before the door gives up
            lock_seconds=min(LOCK_SECONDS_MAX, grace_seconds * 0.25),
            transaction_seconds=min(TRANSACTION_SECONDS_MAX, grace_seconds * 0.7),
        )


def session_conninfo(conninfo: str, bounds: Bounds) -> str:
    """`conninfo` with everything that a session of ours sets: name, time-outs, isolation, the planner's few plans."""
    given = conninfo_to_dict(conninfo)
    options = (
        f"{given.pop('options', '') or ''} {_PLANNER}"
        f" -c statement_timeout={round(bounds.statement_seconds * 1000)}"
        f" -c lock_timeout={round(bounds.lock_seconds * 1000)}"
        f" -c idle_in_transaction_session_timeout={round(bounds.transaction_seconds * 1000)}"
        " -c default_transaction_isolation=read\\ committed -c timezone=UTC"
    )
    return make_conninfo(
        "",
        **{
            "connect_timeout": CONNECT_SECONDS_MAX,
            "keepalives_idle": 10,
            **given,
            "application_name": "switchboard",
            "client_encoding": "utf8",
            "options": options,
        },
    )


class Session(psycopg.Connection[Any]):
    """A connection whose every wait ends at a deadline: all blocking of psycopg goes through `wait`.

    What runs into it is a psycopg error without SQLSTATE, and the connection is useless afterwards.
    """

    deadline: float = math.inf
    """On `time.monotonic()`'s clock, in seconds."""

    def wait(self, gen: PQGen[RV], interval: float = _LOOK_SECONDS, timeout: float | None = None) -> RV:
        """psycopg's own wait, for no longer than the deadline allows."""
        left = max(0.0, self.deadline - time.monotonic())
        if timeout is None or timeout > left:
            timeout = None if left == math.inf else left
        return super().wait(gen, interval, timeout)


class Database:
    """A bounded pool of connections behind `transact`.

    A pool of our own rather than psycopg_pool: BEGIN is the check (a dead idle connection is replaced and nothing was
    lost), a read-only server after a failover is left at once, there is no reconnect schedule of minutes to wait for, and
    every session needs the deadline.
    """

    def __init__(self, conninfo: str, *, pool_size: int, bounds: Bounds) -> None:
        self._conninfo = session_conninfo(conninfo, bounds)
        self._bounds = bounds
        self._limiters: dict[Capacity, trio.CapacityLimiter] = {
            "callers": trio.CapacityLimiter(pool_size),
            "holders": trio.CapacityLimiter(HOLDER_CONNECTIONS),
            "vital": trio.CapacityLimiter(VITAL_CONNECTIONS),
        }
        # Threads are bounded by the tokens above; this one only keeps Trio's own default limit out of the way.
        self._threads = trio.CapacityLimiter(pool_size + HOLDER_CONNECTIONS + VITAL_CONNECTIONS)
        self._idle: list[Session] = []
        self._idle_lock = threading.Lock()
        self._closed = False
        self._up = True

    async def transact(self, work: Callable[[Session], T], *, capacity: Capacity = "callers") -> T:
        """Runs `work` on a connection, in a thread, in one transaction of its own; returns after its commit.

        Waits at most `TOKEN_WAIT_SECONDS_MAX` for a connection, cancellably; once the thread runs it is waited for, since
        nothing may assume that a cancelled call did not commit.

        Raises:
            Unavailable: no connection in time, or the database is away, too slow, read-only.
            BlamesOne, RerunWhole: nothing happened; see `switchboard.errors`.
            OutcomeUnknown: the connection was lost at COMMIT (R32).
        """
        borrower = object()
        limiter = self._limiters[capacity]
        with trio.move_on_after(TOKEN_WAIT_SECONDS_MAX) as wait:
            await limiter.acquire_on_behalf_of(borrower)
        if wait.cancelled_caught:
            raise Unavailable(detail="Every database connection is busy. Try again.")
        try:
            return await trio.to_thread.run_sync(self._run, work, limiter=self._threads)
        finally:
            limiter.release_on_behalf_of(borrower)

    def _run(self, work: Callable[[Session], T]) -> T:
        deadline = time.monotonic() + self._bounds.transaction_seconds
        try:
            session = self._begin(deadline)
        except psycopg.Error as exc:
            raise self._noted(exc) from exc
        try:
            result = work(session)
        except Exception as exc:
            self._roll_back(session, exc)
            raise self._noted(exc) from exc
        try:
            session.execute("commit", prepare=False)
        except psycopg.Error as exc:
            session.close()
            noted = self._noted(exc)
            if exc.sqlstate is not None and exc.sqlstate[:2] in ("23", "40"):
                raise noted from exc  # the server itself says that it did not commit
            raise OutcomeUnknown(result) from exc
        self._put(session)
        if not self._up:
            self._up = True
            _log.info("database_back")
        return result

    def _begin(self, deadline: float) -> Session:
        """A session inside a fresh transaction. BEGIN is what finds a dead one out, before anything could be lost."""
        while (session := self._take()) is not None:
            session.deadline = deadline
            try:
                session.execute("begin", prepare=False)
            except psycopg.Error:
                session.close()
            else:
                return session
        if time.monotonic() >= deadline:
            # An idle session took all of it to find out that the server is silent; a new one would only wait on top.
            raise psycopg.OperationalError("the server does not answer")
        session = Session.connect(self._conninfo, autocommit=True, prepare_threshold=0)
        session.deadline = deadline
        session.execute("begin", prepare=False)
        return session

    def _roll_back(self, session: Session, exc: Exception) -> None:
        if not session.closed and not unusable_afterwards(exc):
            try:
                session.execute("rollback", prepare=False)
            except psycopg.Error:
                session.close()
            else:
                self._put(session)
                return
        session.close()

    def _noted(self, exc: Exception) -> Exception:
        """`exc` in our words. Of a row of outages only the first is logged, the others would repeat it."""
        ours = translate(exc)
        if isinstance(ours, Unavailable) and isinstance(exc, psycopg.Error):
            if not says_away(exc):
                _log.warning("statement_failed", error=first_line(exc), sqlstate=exc.sqlstate)
            elif self._up:
                self._up = False
                _log.error("database_away", error=first_line(exc), sqlstate=exc.sqlstate)
        return ours

    def _take(self) -> Session | None:
        with self._idle_lock:
            return self._idle.pop() if self._idle else None

    def _put(self, session: Session) -> None:
        with self._idle_lock:
            if not self._closed:
                self._idle.append(session)
                return
        session.close()

    def close(self) -> None:
        """Closes what is idle; what is still in use closes itself on its way back. Never waits."""
        with self._idle_lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()
