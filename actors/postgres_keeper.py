"""The keeper of the embedded PostgreSQL: watches its main process, and starts it again when it dies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

LOOK_SECONDS: Final = 0.5

_log = structlog.get_logger("postgres")


def postgres_keeper(*, running: Callable[[], bool], restart: Callable[[], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """An actor around a server that is already up. A restart that fails ends the run; the supervisor tries again."""

    async def run(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            if not running():
                _log.error("embedded_postgres_died", what_next="starting it again; nothing that was committed is lost")
                await restart()
                _log.info("embedded_postgres_back")
            await trio.sleep(LOOK_SECONDS)

    return run
