"""The retry scheduler: a parked todo whose backoff has elapsed is pending again. SPEC-0003 Bounded Retries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


def retry_scheduler(*, requeue: Callable[[], Awaitable[int]], interval_seconds: float) -> Callable[..., Awaitable[None]]:
    """An actor that sweeps elapsed retry windows every `interval_seconds`.

    A claim takes a due todo by itself, so this tick bounds only how soon those who wait hear of it. A database that is
    away ends the run; the supervisor starts it again.
    """

    async def run(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            await requeue()
            await trio.sleep(interval_seconds)

    return run
