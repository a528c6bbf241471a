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
from switchboard.database.failures import Blamed, first_line, translate
from switchboard.database.queries import load
from switchboard.store.rows import Row, fetch, fetch_one
from switchboard.todo import Ring

SWEEP_ROWS_MAX: Final = 500
"""Rows in one transaction of a sweep: enough to drain 200,000 in seconds, too few to hold anything up."""

_REVOKED: Final = load("sweeps/revoked")
_DRAINING: Final = load("sweeps/draining")
_DRAINED: Final = load("sweeps/drained")


@attrs.frozen(kw_only=True)
class Sweep:
    """A kind of sweep: the statement that moves a batch, and the one that names its rows."""

    move: bytes
    candidates: bytes


REAP: Final = Sweep(move=load("sweeps/reap"), candidates=load("sweeps/reap_candidates"))
REQUEUE: Final = Sweep(move=load("sweeps/requeue"), candidates=load("sweeps/requeue_candidates"))


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

    When a row fails, the batch is undone to its savepoint and its rows are tried one by one: the bad one is reported, and
    never stops the others (R10).
    """
    values: dict[str, object] = {"bad": list(bad), "limit": SWEEP_ROWS_MAX, "only": None}
    try:
        with session.transaction():
            rows = fetch(session, kind.move, values)
    except psycopg.Error as exc:
        if not isinstance(translate(exc), Blamed):
            raise
        return _one_by_one(session, kind, values)
    return _swept(rows, failed=(), full=len(rows) >= SWEEP_ROWS_MAX)


def _one_by_one(session: Session, kind: Sweep, values: dict[str, object]) -> Swept:
    moved: list[Row] = []
    failed: list[tuple[UUID, str]] = []
    candidates = fetch(session, kind.candidates, values)
    for candidate in candidates:
        try:
            with session.transaction():
                moved += fetch(session, kind.move, values | {"only": candidate["id"]})
        except psycopg.Error as exc:
            if not isinstance(translate(exc), Blamed):
                raise
            failed.append((candidate["id"], first_line(exc)))
    return _swept(moved, failed=tuple(failed), full=len(candidates) >= SWEEP_ROWS_MAX)


def _swept(rows: Sequence[Row], *, failed: tuple[tuple[UUID, str], ...], full: bool) -> Swept:
    pending = [row for row in rows if row["state"] == "pending"]
    rings = tuple(Ring(**{name: value for name, value in row.items() if name != "state"}) for row in pending)
    return Swept(moved=len(rows), dead_lettered=len(rows) - len(pending), rings=rings, failed=failed, full=full)


def draining_endpoints(session: Session) -> list[UUID]:
    """Revoked endpoints whose open todos may not all be dead-lettered yet."""
    return [row["id"] for row in fetch(session, _DRAINING, {})]


def sweep_revoked(session: Session, endpoint_id: UUID) -> int:
    """Dead-letters one batch of a revoked endpoint's open todos; returns how many. At 0 its books may close (R17)."""
    row = fetch_one(session, _REVOKED, {"endpoint_id": endpoint_id, "limit": SWEEP_ROWS_MAX})
    moved = int(row["moved"]) if row is not None else 0
    if moved == 0:
        session.execute(_DRAINED, {"endpoint_id": endpoint_id})
    return moved
