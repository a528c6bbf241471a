"""The MCP sessions: opens the protocol when `/mcp` is first asked for, and holds its sessions from then on.

A house that nobody asks for `/mcp` never opens it: what speaks it takes a second to import. Started again after a failure, this
opens it anew; sessions do not outlive that, and their clients open others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, TypeVar

import trio

from switchboard.errors import Unavailable

OPEN_SECONDS_MAX: Final = 30.0
"""What the first request waits for the import, on a machine with better things to do."""

T = TypeVar("T")


class McpSessions(Generic[T]):
    """What `open_` opens, while it is open."""

    def __init__(self, open_: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._open = open_
        self._wanted = trio.Event()
        self._opened = trio.Event()
        self._spoken: T | None = None

    async def spoken(self) -> T:
        """The open protocol; opens it if nobody has asked before. Raises `Unavailable` while it cannot be had."""
        self._wanted.set()
        with trio.move_on_after(OPEN_SECONDS_MAX):
            await self._opened.wait()
        if self._spoken is None:
            raise Unavailable(detail="MCP is not open yet. Try again.")
        return self._spoken

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor: waits until it is wanted, then holds the protocol open. Ends only by cancellation."""
        task_status.started()
        await self._wanted.wait()
        async with self._open() as self._spoken:
            self._opened.set()
            try:
                await trio.sleep_forever()
            finally:
                self._spoken = None
                self._opened = trio.Event()
