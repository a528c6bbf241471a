"""Real threads that start at one barrier, each with a connection of its own: what takes a race detector's place (R29)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from switchboard.database.border import Session
from tests.store.desk import Desk, open_session

T = TypeVar("T")

SECONDS_MAX = 30.0
WAIT_SECONDS_MAX = 2.5
"""Shorter than the lock_timeout of whoever waits."""


def together(conninfo: str, works: Sequence[Callable[[Desk, threading.Barrier], T]]) -> list[T]:
    """Runs each work in a thread on a session of its own, all through one barrier first; returns what they returned.

    A work commits each of its transactions with `committed`; the barrier is theirs to meet at again. The first
    exception of any is raised here.
    """
    barrier = threading.Barrier(len(works), timeout=SECONDS_MAX)
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    def run(place: int, work: Callable[[Desk, threading.Barrier], T]) -> None:
        try:
            with open_session(conninfo) as session:
                barrier.wait()
                results[place] = work(Desk(session), barrier)
        except BaseException as exc:  # noqa: BLE001 - handed to the test, which raises it
            failures.append(exc)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(place, work)) for place, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    for failure in failures:
        if not isinstance(failure, threading.BrokenBarrierError):
            raise failure
    assert not failures
    return [results[place] for place in range(len(works))]


def committed(session: Session, work: Callable[[], T]) -> T:
    """Runs `work` in one transaction, as the border does."""
    session.execute("begin")
    try:
        result = work()
    except BaseException:
        session.execute("rollback")
        raise
    session.execute("commit")
    return result


def until_somebody_waits(desk: Desk) -> None:
    """Returns once another session of this database waits for a lock, which is the moment that the test is about."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    while not desk.one(waiting):
        assert time.monotonic() < deadline, "nobody waits"
        desk.session.execute("select pg_stat_clear_snapshot()")
