"""The sweeps by name: what the reaper, the retry scheduler and a revoke run on the database, each to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from switchboard.database.border import Database
from switchboard.store import sweeping
from switchboard.sweeper import sweep_until_done
from switchboard.todo import Ring

REVOKE_SECONDS_MAX: Final = 5.0
"""How long a revoke's answer waits for its sweep; the reaper goes on with whatever is left then (R17)."""


async def reap(database: Database, ring: Callable[[Ring], None]) -> int:
    """SPEC-0003 Lease-Expiry Requeue and Reaper: lapsed leases go back to the queue, or to the dead letters at the cap."""
    return await sweep_until_done("reap", _batches(database, sweeping.REAP), ring)


async def requeue(database: Database, ring: Callable[[Ring], None]) -> int:
    """SPEC-0003 Bounded Retries: what was parked is pending again once its backoff has elapsed."""
    return await sweep_until_done("requeue", _batches(database, sweeping.REQUEUE), ring)


async def drain(database: Database, endpoint_id: UUID) -> int:
    """Dead-letters what a revoked endpoint left open, as much as fits into a caller's patience; returns how many (R17)."""

    def batch(bad: Sequence[UUID]) -> Awaitable[sweeping.Swept]:
        return database.transact(partial(sweeping.sweep_revoked, endpoint_id=endpoint_id, bad=bad))

    def nobody(ring: Ring) -> None:
        """Nothing that is dead-lettered rings."""

    return await sweep_until_done("revoke", batch, nobody, seconds_max=REVOKE_SECONDS_MAX)


async def drain_revoked(database: Database) -> int:
    """The same for every endpoint whose books are still open: for what a caller had no patience for, and stragglers."""
    return sum([await drain(database, id_) for id_ in await database.transact(sweeping.draining_endpoints)])


def _batches(database: Database, kind: sweeping.Sweep) -> Callable[[Sequence[UUID]], Awaitable[sweeping.Swept]]:
    return lambda bad: database.transact(partial(sweeping.sweep, kind=kind, bad=bad))
