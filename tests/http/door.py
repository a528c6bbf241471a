"""A front door on a real socket, supervised as in the house, and a client that speaks bytes."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import structlog
import trio

from actors.front_door import Express, front_door
from switchboard import log
from switchboard.listeners import open_listeners
from switchboard.supervisor import Actor, ActorHealth, supervise

GET = b"GET / HTTP/1.1\r\nhost: house\r\n\r\n"


@attrs.define(kw_only=True, eq=False)
class Client:
    """A connection to the door. `read` gives one whole HTTP/1.1 answer with a declared length."""

    stream: trio.SocketStream
    _buffer: bytearray = attrs.field(init=False, factory=bytearray)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def read(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer that is not a 1xx."""
        head = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        if status < 200:
            return await self.read()
        return status, headers, await self._exactly(int(headers.get("content-length", "0")))

    async def rest(self) -> bytes:
        """Everything until the door closes the connection, orderly or not."""
        try:
            while more := await self.stream.receive_some():
                self._buffer += more
        except trio.BrokenResourceError:
            pass
        return bytes(self._buffer)

    async def aclose(self) -> None:
        await self.stream.aclose()

    async def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            await self._more()
        return await self._exactly(self._buffer.index(mark) + len(mark))

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._more()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def _more(self) -> None:
        more = await self.stream.receive_some()
        if not more:
            raise EOFError(bytes(self._buffer))
        self._buffer += more


@attrs.define(kw_only=True, eq=False)
class Door:
    """The running door."""

    port: int
    closing: trio.Event
    health: dict[str, ActorHealth]
    ended: trio.Event

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A fresh connection, closed afterwards."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            yield Client(stream=stream)

    async def ask(self, data: bytes = GET) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own, and its answer."""
        async with self.client() as client:
            await client.send(data)
            return await client.read()


@asynccontextmanager
async def open_door(app: Any, *, express: Express | None = None, drain_seconds: float = 5.0) -> AsyncIterator[Door]:
    """`app` behind a supervised front door on a port of its own, closed in order afterwards; 30 s are enough for it all."""
    listening = await open_listeners("127.0.0.1", 0)
    door = Door(port=listening.port, closing=trio.Event(), health={}, ended=trio.Event())
    run = front_door(app=app, express=express, listeners=listening.listeners, closing=door.closing, drain_seconds=drain_seconds)
    try:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(_supervise, Actor(name="front_door", run=run, drains=True), door, drain_seconds)
                yield door
                door.closing.set()
    finally:
        listening.close()


async def _supervise(actor: Actor, door: Door, drain_seconds: float, *, task_status: trio.TaskStatus[None]) -> None:
    await supervise(
        [actor],
        closing=door.closing,
        drain_seconds=drain_seconds + 1,
        health=door.health,
        task_status=task_status,
    )
    door.ended.set()


@contextmanager
def house_log() -> Iterator[io.StringIO]:
    """The house's own logging, into a string, and everything as it was afterwards."""
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    stream = io.StringIO()
    log.configure(stream=stream)
    try:
        yield stream
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**config)


def connections_served() -> int:
    """How many connection tasks the door has now, whatever their sockets are doing."""
    return sum(task.name.endswith("_House.serve") for task in _tasks(trio.lowlevel.current_root_task()))


async def until(condition: Callable[[], bool], *, seconds: float = 5.0) -> None:
    """Wait for what another task or the kernel does, which no event tells."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - the kernel sets no trio.Event
            await trio.sleep(0.005)


def _tasks(task: trio.lowlevel.Task | None) -> list[trio.lowlevel.Task]:
    if task is None:
        return []
    return [task] + [each for nursery in task.child_nurseries for child in nursery.child_tasks for each in _tasks(child)]


Application = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]
