"""The doorbell: hears that todos became pending, and wakes whoever waits for them (R25).

Rings come in by `ring`, which never waits: after a commit, from the ledger and the sweeps. They are hints. When the inbox is
full they are dropped, and the look that waiters take for themselves once a second makes up for it.
"""

from __future__ import annotations

import contextlib
from typing import Final

import structlog
import trio

from switchboard.todo import Ring
from switchboard.waiting_room import WaitingRoom

RINGS_WAITING_MAX: Final = 10_000
RINGS_AT_ONCE_MAX: Final = 1_000
LOOK_SECONDS: Final = 1.0

_log = structlog.get_logger("doorbell")


class Doorbell:
    """One inbox of rings, one room of waiters."""

    def __init__(self, room: WaitingRoom) -> None:
        self._room = room
        self._inbox, self._rings = trio.open_memory_channel[Ring](RINGS_WAITING_MAX)
        self.dropped = 0

    def ring(self, ring: Ring) -> None:
        """Announces a pending todo. Never waits, never fails: a ring that finds the inbox full is dropped.

        So is one that nobody of its endpoint waits for: whoever sits down after it looks at the database after it too.
        """
        if not self._room.has_waiters(ring.endpoint_id):
            return
        try:
            self._inbox.send_nowait(ring)
        except trio.WouldBlock:
            self.dropped += 1

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor: fans rings out, and once a second lets the waiters look. Ends only by cancellation."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_once_a_second)
            task_status.started()
            while True:
                self._room.ring(await self._rings.receive())
                # A batch rings hundreds of times at once: one turn of the scheduler for all of them, not one for each.
                with contextlib.suppress(trio.WouldBlock):
                    for _ in range(RINGS_AT_ONCE_MAX):
                        self._room.ring(self._rings.receive_nowait())

    async def _look_once_a_second(self) -> None:
        while True:
            await trio.sleep(LOOK_SECONDS)
            self._room.look_for_yourselves()
            if self.dropped:
                _log.info("rings_dropped", rings=self.dropped)
                self.dropped = 0
