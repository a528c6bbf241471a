"""How a sweep runs: batch after batch until a short one, ringing after each, stepping over rows that failed alone (R10)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

import structlog
import trio

from switchboard.store.sweeping import Swept
from switchboard.todo import Ring

BAD_ROWS_MAX: Final = 1_000
"""Rows that one sweep steps over before it gives up until the next tick."""

_log = structlog.get_logger("sweeper")


async def sweep_until_done(
    name: str,
    batch: Callable[[Sequence[UUID]], Awaitable[Swept]],
    ring: Callable[[Ring], None],
    *,
    seconds_max: float = math.inf,
) -> int:
    """Runs one sweep to its end, or until it has taken `seconds_max`; returns how many todos it moved.

    A row that cannot be moved is named in the log, and tried again at the next tick: it never stops the others.
    """
    bad: list[UUID] = []
    moved = 0
    until = trio.current_time() + seconds_max
    while len(bad) < BAD_ROWS_MAX:
        swept = await batch(bad)
        moved += swept.moved
        for todo_ring in swept.rings:
            ring(todo_ring)
        for todo_id, reason in swept.failed:
            _log.error("todo_cannot_be_swept", sweep=name, todo_id=str(todo_id), reason=reason)
            bad.append(todo_id)
        if not swept.full or trio.current_time() > until:
            break
    if moved:
        _log.info("swept", sweep=name, todos=moved)
    return moved
