"""The reaper: what crashed workers held returns to the queue, and what revoked endpoints left behind is dead-lettered.

SPEC-0003 Lease-Expiry Requeue and Reaper; R17. It holds no state: the next tick finds whatever this one did not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


def reaper(
    *, reap: Callable[[], Awaitable[int]], drain_revoked: Callable[[], Awaitable[int]], interval_seconds: float
) -> Callable[..., Awaitable[None]]:
    """An actor that sweeps lapsed leases and revoked endpoints every `interval_seconds`.

    A database that is away ends the run; the supervisor starts it again.
    """

    async def run(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            await reap()
            await drain_revoked()
            await trio.sleep(interval_seconds)

    return run
