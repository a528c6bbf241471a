"""The actor of the MCP sessions: opened when it is wanted, opened anew after a failure, never waited for without an end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.mcp_sessions import OPEN_SECONDS_MAX, McpSessions
from switchboard.errors import Unavailable


class Line:
    """What is opened: how often, and whether it is open."""

    def __init__(self) -> None:
        self.opened = 0
        self.is_open = False
        self.fails = trio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        """Opens it until `fails`."""
        self.opened += 1
        self.is_open = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._fail)
                yield self.opened
                nursery.cancel_scope.cancel()
        finally:
            self.is_open = False

    async def _fail(self) -> None:
        await self.fails.wait()
        self.fails = trio.Event()
        raise ValueError("on purpose")


async def test_nothing_is_opened_before_it_is_wanted(nursery: trio.Nursery) -> None:
    """A house that nobody asks for `/mcp` pays nothing for it; all who ask get the same."""
    line = Line()
    actor = McpSessions(line.open)
    await nursery.start(lambda task_status: actor.run(task_status=task_status))
    await wait_all_tasks_blocked()
    assert line.opened == 0
    assert [await actor.spoken(), await actor.spoken()] == [1, 1]


async def test_a_failure_ends_the_run_and_the_next_one_opens_anew(autojump_clock: MockClock) -> None:
    """Meanwhile callers wait, and are told when it takes too long."""
    line = Line()
    actor = McpSessions(line.open)

    async def run() -> None:
        with pytest.raises(ExceptionGroup):
            await actor.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        assert await actor.spoken() == 1
        line.fails.set()
        await wait_all_tasks_blocked()
    assert not line.is_open
    began = trio.current_time()
    with pytest.raises(Unavailable):
        await actor.spoken()
    assert trio.current_time() - began == OPEN_SECONDS_MAX
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.run)
        assert await actor.spoken() == 2
        nursery.cancel_scope.cancel()
    assert not line.is_open
