"""The steps that block while the house opens, each in a thread that the closing signal can call back."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import trio

from switchboard.database import embedded
from switchboard.database.embedded import EmbeddedPostgres
from switchboard.database.migrations import migrate
from switchboard.database.queries import MIGRATIONS
from switchboard.database.server import wait_until_up

T = TypeVar("T")


class EmbeddedServer:
    """The embedded server that this house runs: started, watched, started again, and stopped last."""

    def __init__(self, state_dir: Path, closing: trio.Event) -> None:
        self._state_dir = state_dir
        self._closing = closing
        self._server: EmbeddedPostgres | None = None

    async def start(self) -> str:
        """Starts or adopts it; returns the connection string. Raises StartError."""
        begin = partial(embedded.start, self._state_dir, give_up=self._closing.is_set)
        self._server = await trio.to_thread.run_sync(begin)
        return self._server.conninfo

    async def restart(self) -> None:
        """Starts it once more. Its connection string stays the same."""
        await self.start()

    def running(self) -> bool:
        """Whether its main process lives."""
        return self._server is not None and self._server.running()

    async def stop(self, seconds_max: float) -> None:
        """Stops it, in order if there is time, else by force. Not called back by anything."""
        if self._server is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._server.stop, seconds_max)

    def kill_now(self) -> None:
        """For the end of the grace: tells it to drop everything, from any thread."""
        if self._server is not None:
            self._server.kill_now()


async def bring_up_to_date(conninfo: str, closing: trio.Event) -> list[str]:
    """Waits for the database, then migrates it; returns the names of the migrations applied.

    The closing signal ends both at once: the socket is shut down, so that even a wait for somebody's lock is over, and
    what was not committed never happened. Raises StartError.
    """
    await trio.to_thread.run_sync(partial(wait_until_up, conninfo, give_up=closing.is_set))
    line = _Line()
    async with trio.open_nursery() as nursery:

        async def hang_up_on_closing() -> None:
            await closing.wait()
            line.hang_up()

        nursery.start_soon(hang_up_on_closing)
        run = partial(migrate, conninfo, directory=MIGRATIONS, on_connect=line.connected)
        try:
            return await trio.to_thread.run_sync(run)
        finally:
            nursery.cancel_scope.cancel()


class _Line:
    """One connection that another thread can cut."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cut = False
        self._connection: psycopg.Connection[Any] | None = None

    def connected(self, connection: psycopg.Connection[Any]) -> None:
        """The migrating thread is on this connection from now on."""
        with self._lock:
            self._connection = connection
            if self._cut:
                _shut_down(connection)

    def hang_up(self) -> None:
        """Cuts it, now or as soon as there is one."""
        with self._lock:
            self._cut = True
            if self._connection is not None:
                _shut_down(self._connection)


def _shut_down(connection: psycopg.Connection[Any]) -> None:
    if not connection.closed:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)


async def in_thread(step: Callable[[], T]) -> T:
    """Runs a short step that touches files."""
    return await trio.to_thread.run_sync(step)
