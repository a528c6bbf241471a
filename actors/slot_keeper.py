"""The slot keeper: holds this process's numbered slot by a beat in the database, so that adapters keep their names (R31)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

from switchboard.slot import Slots

BEAT_SECONDS: Final = 2.0
TRUSTED_SECONDS: Final = 6.0
"""A slot that was last confirmed longer ago than this is not used any more: well before the database gives it to others."""

_log = structlog.get_logger("slots")


class SlotKeeper:
    """Knows the slot, and since when."""

    def __init__(self, beat: Callable[[], Awaitable[Slots]]) -> None:
        self._beat = beat
        self._slots: Slots | None = None
        self._asked_at = float("-inf")

    def slots(self) -> Slots | None:
        """The slots as the last beat told them; None while nobody can say that ours is still ours."""
        return self._slots if trio.current_time() - self._asked_at < TRUSTED_SECONDS else None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor. A database that is away ends the run; the supervisor starts it again."""
        task_status.started()
        while True:
            asked_at = trio.current_time()
            slots = await self._beat()
            if self._slots is None or slots.mine != self._slots.mine:
                _log.info("slot_taken", slot=slots.mine, others=sorted(slots.live - {slots.mine}))
            self._slots, self._asked_at = slots, asked_at
            await trio.sleep(BEAT_SECONDS)
