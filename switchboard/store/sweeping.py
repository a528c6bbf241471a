"""The sweeps over every endpoint: lapsed leases, elapsed retry windows, and what revoked endpoints leave behind.

SPEC-0003 Lease-Expiry Requeue and Reaper; Bounded Retries; Background sweeps are exempt from the endpoint scope: they
show no todo to anybody, and every ring they emit names the endpoint of the row that moved. R10, R17.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import attrs
import psycopg

from switchboard.database.border import Session
from switchboard.database.failures import blames_what_it_did, first_line
from switchboard.database.queries import load
from switchboard.store.rows import Row, fetch
from switchboard.todo import Ring

SWEEP_ROWS_MAX: Final = 500
"""Rows in one transaction of a sweep: enough to drain 200,000 in seconds, too few to hold anything up."""

_DRAINING: Final = load("sweeps/draining")
_DRAINED: Final = load("sweeps/drained")


@attrs.frozen(kw_only=True)
class Sweep:
    """A kind of sweep: the statement that locks a batch, and the one that moves what is locked."""

    lock: bytes
    move: bytes


REAP: Final = Sweep(lock=load("sweeps/lock_lapsed"), move=load("sweeps/reap"))
REQUEUE: Final = Sweep(lock=load("sweeps/lock_due"), move=load("sweeps/requeue"))
_REVOKE: Final = Sweep(lock=load("sweeps/lock_left_open"), move=load("sweeps/revoke"))


@attrs.frozen(kw_only=True)
class Swept:
    """What one batch did: rows moved, how many of them were dead-lettered, the rings owed, and the rows that failed alone.

    `full` says that the batch was as large as it may be, so that there is probably more.
    """

    moved: int = 0
    dead_lettered: int = 0
    rings: tuple[Ring, ...] = ()
    failed: tuple[tuple[UUID, str], ...] = ()
    full: bool = False


def sweep(session: Session, kind: Sweep, bad: Sequence[UUID]) -> Swept:
    """Moves one bounded batch. `bad` names rows that failed before in this sweep, and are stepped over.

    When a row fails, the batch is undone to its savepoint and its rows, which stay locked, are moved one by one: the bad
    one is reported, and never stops the others (R10).
    """
    return _sweep(session, kind, bad, {})


def _sweep(session: Session, kind: Sweep, bad: Sequence[UUID], scope: dict[str, object]) -> Swept:
    locked = fetch(session, kind.lock, {"bad": list(bad), "limit": SWEEP_ROWS_MAX, **scope})
    full = len(locked) >= SWEEP_ROWS_MAX
    if not locked:
        return Swept()
    try:
        return _swept(_move(session, kind, locked), failed=(), full=full)
    except psycopg.Error as exc:
        if not blames_what_it_did(exc):
            raise
    moved: list[Row] = []
    failed: list[tuple[UUID, str]] = []
    for row in locked:
        try:
            moved += _move(session, kind, [row])
        except psycopg.Error as exc:
            if not blames_what_it_did(exc):
                raise
            failed.append((row["id"], first_line(exc)))
    return _swept(moved, failed=tuple(failed), full=full)


def _move(session: Session, kind: Sweep, locked: Sequence[Row]) -> list[Row]:
    values = {"endpoint_ids": [row["endpoint_id"] for row in locked], "ids": [row["id"] for row in locked]}
    with session.transaction():
        return fetch(session, kind.move, values)


def _swept(rows: Sequence[Row], *, failed: tuple[tuple[UUID, str], ...], full: bool) -> Swept:
    pending = [row for row in rows if row["state"] == "pending"]
    rings = tuple(Ring(**{name: value for name, value in row.items() if name != "state"}) for row in pending)
    return Swept(moved=len(rows), dead_lettered=len(rows) - len(pending), rings=rings, failed=failed, full=full)


def draining_endpoints(session: Session) -> list[UUID]:
    """Revoked endpoints whose open todos may not all be dead-lettered yet."""
    return [row["id"] for row in fetch(session, _DRAINING, {})]


def sweep_revoked(session: Session, endpoint_id: UUID, bad: Sequence[UUID]) -> Swept:
    """Dead-letters one bounded batch of a revoked endpoint's open todos. After the last its books may close (R17)."""
    swept = _sweep(session, _REVOKE, bad, {"endpoint_id": endpoint_id})
    if not swept.full:
        session.execute(_DRAINED, {"endpoint_id": endpoint_id})
    return swept
