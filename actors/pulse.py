"""The pulse: looks at the database once a second, so that `/readyz` can answer at once, whatever the database does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs
import trio

from switchboard.errors import SwitchboardError

LOOK_SECONDS: Final = 1.0
SILENCE_SECONDS_MAX: Final = 3.0
"""A look that takes longer is an answer too: the database is not there for anybody."""


class Look(Protocol):
    """What a look at the database tells."""

    @property
    def server(self) -> str:
        """Its version."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether it refuses writes."""
        ...


@attrs.frozen(kw_only=True)
class Beat:
    """The database as the last look found it."""

    up: bool
    server: str | None = None
    last_error: str | None = None


class Pulse:
    """Remembers the last look."""

    def __init__(self, look: Callable[[], Awaitable[Look]]) -> None:
        self._look = look
        self._beat = Beat(up=False, last_error="not asked yet")
        self._asked_at: float | None = None

    def beat(self) -> Beat:
        """The last look, or that the one under way has been waiting for too long."""
        if self._asked_at is not None and trio.current_time() - self._asked_at > SILENCE_SECONDS_MAX:
            silence = f"no answer for {trio.current_time() - self._asked_at:.0f} s"
            return attrs.evolve(self._beat, up=False, last_error=silence)
        return self._beat

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor. A database that is away is what it is there to see, and no reason to end."""
        task_status.started()
        while True:
            self._asked_at = trio.current_time()
            try:
                seen = await self._look()
            except SwitchboardError as away:
                self._beat = attrs.evolve(self._beat, up=False, last_error=str(away))
            else:
                self._beat = Beat(
                    up=not seen.read_only,
                    server=seen.server,
                    last_error="it is read-only" if seen.read_only else None,
                )
            self._asked_at = None
            await trio.sleep(LOOK_SECONDS)
