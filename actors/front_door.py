"""The front door: accepts connections and serves each with Hypercorn, so that no bytes on the port can end anything else.

A connection is a task of its own, contained: an h11, h2 or wsproto error, an exception group, a RecursionError in one
of them is a log line and a closed socket (R30). A bare Hypercorn on Trio runs its connections in the server's own
nursery, where one WebSocket upgrade with a byte too many after its head ends them all.

This is the one module that knows Hypercorn. It leans on `hypercorn.trio.tcp_server.TCPServer`, its connection object,
and on the bound `send` that it hands to the application; tests/http/test_front_door.py guards that seam.
"""

from __future__ import annotations

import errno
import logging
import resource
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import attrs
import h11
import structlog
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from switchboard.http.exchange import Application, Exchange, serve_exchange
from switchboard.http.express_framing import HEAD_BYTES_MAX
from switchboard.http.guarded_stream import LOOK_SECONDS, GuardedStream
from switchboard.http.hang_ups import HangUps
from switchboard.supervisor import contain
from switchboard.throttle import Throttle

# 10,000 attached agents and room for the rest. Fewer where the process may not open that many files.
CONNECTIONS_MAX = 12_000

# Files that are not connections: the pool, brokers, logs, the wheels' own.
OPEN_FILES_RESERVE = 512

# How long the door waits when the kernel has no room for another connection. The backlog holds them meanwhile.
ACCEPT_PAUSE_SECONDS = 0.1

HTTP2_STREAMS_MAX = 100

# Hypercorn forgets a reset HTTP/2 stream at once while its application may still be running. Beyond this the client is
# resetting faster than we can stop ("rapid reset"), and is cut off.
REQUESTS_AT_ONCE_MAX = 2 * HTTP2_STREAMS_MAX

# Chunks of a request's body, 64 KiB at the most each, that wait for an application that does not read them.
BODY_CHUNKS_QUEUED_MAX = 10

_log = structlog.get_logger("front_door")


Express = Callable[[GuardedStream, trio.Event], Awaitable[bool]]
"""Serves a connection by itself for as long as it can; True when the rest of it is Hypercorn's."""


def front_door(
    *,
    app: Application,
    express: Express | None = None,
    listeners: Sequence[trio.SocketListener],
    closing: trio.Event,
    drain_seconds: float,
) -> Callable[..., Awaitable[None]]:
    """The front door's `run`: serves the ASGI application `app` on `listeners` until `closing` is set.

    Each connection begins in the `express` lane, where there is one, and goes over to Hypercorn when that lane gives it up.

    Then it closes the listeners, ends idle connections, lets requests in flight finish for `drain_seconds`, cancels
    what is left, and returns. If it crashes or is cancelled the listeners stay open, and it can be run again.
    `app` gets no lifespan events; whatever it needs at start is done before.
    """
    return partial(_run, app=app, express=express, listeners=listeners, closing=closing, drain_seconds=drain_seconds)


async def _run(
    *,
    app: Application,
    express: Express | None,
    listeners: Sequence[trio.SocketListener],
    closing: trio.Event,
    drain_seconds: float,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    house = _House(app=app, express=express, closing=closing, connections_max=_connections_max())
    async with trio.open_nursery() as connections:
        connections.start_soon(house.keep_time)
        connections.start_soon(house.hang_ups.run)
        async with trio.open_nursery() as doors:
            for listener in listeners:
                doors.start_soon(_accept, listener, house, connections)
            task_status.started()
            await closing.wait()
            doors.cancel_scope.cancel()

        for listener in listeners:
            await listener.aclose()
        # Hypercorn's own word for the end (`context.terminated`) is never said: it makes HTTP/2 send GOAWAY between the
        # last bytes of an answer and the mark that it is complete, which then is never sent.
        # Two steps for a request whose task exists but has not run yet; its connection is not idle.
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        for stream in house.streams:
            stream.hurry()
        with trio.move_on_after(drain_seconds):
            await house.wait_empty()
        # Sockets first: Hypercorn's sends are shielded, and only a closed socket ends them.
        for stream in house.streams:
            stream.kill()
        connections.cancel_scope.cancel()


@attrs.define(kw_only=True, eq=False)
class _House:
    """What the connections of one run share. It is also Hypercorn's application."""

    app: Application
    express: Express | None
    closing: trio.Event
    connections_max: int
    config: Config = attrs.field(factory=lambda: _hypercorn_config())
    context: WorkerContext = attrs.field(factory=lambda: WorkerContext(None))
    streams: set[GuardedStream] = attrs.field(factory=set)
    hang_ups: HangUps = attrs.field(factory=HangUps)
    # One for each event's name, of which there are few.
    throttles: dict[str, Throttle] = attrs.field(factory=dict)
    _emptied: trio.Event = attrs.field(factory=trio.Event)
    _filled: trio.Event = attrs.field(factory=trio.Event)

    async def serve(self, client: trio.socket.SocketType) -> None:
        """Serve one connection to its end. Whatever happens in it stays in it."""
        scope = trio.CancelScope()
        stream = GuardedStream(client, scope=scope, hang_ups=self.hang_ups)
        self.streams.add(stream)
        self._filled.set()
        try:
            with scope:
                await contain(partial(self._serve, stream), failed=partial(self.report, "connection failed"))
            await stream.finish()
        finally:
            stream.socket.close()
            self.streams.discard(stream)
            if not self.streams:
                self._emptied.set()

    async def _serve(self, stream: GuardedStream) -> None:
        if self.express is not None and not await self.express(stream, self.closing):
            return
        server = TCPServer(
            self,
            self.config,
            self.context,
            ConnectionState({"connection": stream}),
            # The annotation asks for a TLS stream; without a handshake to do it takes any stream with a socket.
            cast("Any", stream),
        )
        await server.run()

    async def __call__(
        self,
        scope: Any,
        receive: Any,
        send: Any,
        sync_spawn: Callable[..., Any],  # noqa: ARG002 - for WSGI; the names are Hypercorn's
        call_soon: Callable[..., Any],  # noqa: ARG002
    ) -> None:
        """Hypercorn's application: one request. `send` is the bound method of Hypercorn's stream for it."""
        stream: GuardedStream = scope["state"]["connection"]
        if stream.requests >= REQUESTS_AT_ONCE_MAX:
            self.report("too many requests at once on one connection", None)
            stream.abort()
            return
        http2 = scope["http_version"] == "2"
        exchange = Exchange(
            stream=stream,
            http2=http2,
            closing=self.closing,
            server=_HypercornStream(send.__self__),
            server_receive=receive,
            server_send=send,
        )
        if http2 and self.closing.is_set():
            # HTTP/1.1 connections close after their answer; one that carries many at once has to be told.
            refuse = partial(exchange.answer_problem, 503, "Unavailable", "unavailable", "This process is closing.")
            await contain(refuse, failed=partial(self.report, "request failed"))
            return
        scope["state"]["connection"] = exchange
        stream.request_began(http2=http2)
        try:
            await serve_exchange(self.app, scope, exchange, failed=partial(self.report, "request failed"))
        finally:
            stream.request_ended()

    def report(self, event: str, error: BaseException | None) -> None:
        """One line about a fault, at a bounded rate: kinds and places, never a message, which may quote the request."""
        suppressed = self.throttles.setdefault(event, Throttle()).take()
        if suppressed is not None:
            _log.warning(event, fault=_fault(error), suppressed=suppressed)

    async def keep_time(self) -> None:
        """Looks at the deadlines of all connections, while there are any."""
        while True:
            while not self.streams:
                self._filled = trio.Event()
                await self._filled.wait()
            await trio.sleep(LOOK_SECONDS)
            now = trio.current_time()
            for stream in tuple(self.streams):
                stream.look(now)

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""
        while self.streams:
            self._emptied = trio.Event()
            await self._emptied.wait()


@attrs.frozen
class _HypercornStream:
    """Hypercorn's stream for one request, which the application's `send` is a method of, as a ServerStream."""

    stream: Any

    def is_open(self) -> bool:
        return not self.stream.closed

    def is_read(self) -> bool:
        return self.stream.send.__self__.connection.their_state is not h11.SEND_BODY

    async def drained(self) -> None:
        # Hypercorn's own back-pressure lets go when the client's window is empty, and then keeps all that is sent.
        buffer = self._buffers.get(self.stream.stream_id)
        if buffer is not None and buffer.buffer:
            await buffer.drain()

    def is_sent(self) -> bool:
        # It forgets the buffer right after the frame that ends the stream has been sent.
        return self.stream.stream_id not in self._buffers

    @property
    def _buffers(self) -> dict[int, Any]:
        buffers: dict[int, Any] = self.stream.send.__self__.stream_buffers
        return buffers


async def _accept(listener: trio.SocketListener, house: _House, connections: trio.Nursery) -> None:
    """Take connections from one listener until it is closed or this is cancelled."""
    while True:
        try:
            stream = await listener.accept()
        except OSError as error:
            # No files left, no memory, or one of the many errors of a connection that died in the queue. None of them
            # is the listener's fault, and a door that stays open is worth more than knowing which.
            house.report(f"accept failed: {errno.errorcode.get(error.errno or 0, 'unknown')}", None)
            await trio.sleep(ACCEPT_PAUSE_SECONDS)
            continue
        if len(house.streams) >= house.connections_max:
            house.report("too many connections", None)
            stream.socket.close()
            continue
        connections.start_soon(house.serve, stream.socket)


def _hypercorn_config() -> Config:
    config = Config()
    config.include_server_header = False
    config.accesslog = None
    # A logger of the standard library: what Hypercorn says goes where everything else goes.
    config.errorlog = logging.getLogger("hypercorn.error")
    config.h11_max_incomplete_size = HEAD_BYTES_MAX
    config.h2_max_header_list_size = HEAD_BYTES_MAX
    config.h2_max_concurrent_streams = HTTP2_STREAMS_MAX
    config.max_app_queue_size = BODY_CHUNKS_QUEUED_MAX
    # The stream has the clocks. Hypercorn's own is lost after a request that Quart served (see Exchange.send).
    config.keep_alive_timeout = 3_600
    # At this count it closes an HTTP/2 connection under the answers that are still on their way, and tells nobody.
    config.keep_alive_max_requests = 2**62
    return config


def _connections_max() -> int:
    """How many connections this process can hold, after taking as many open files as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, max(16, hard - OPEN_FILES_RESERVE))


def _fault(error: BaseException | None) -> str | None:
    """The kinds of an error and where it was raised, without its words."""
    if error is None:
        return None
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(sorted({str(_fault(inner)) for inner in error.exceptions[:5]}))
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    where = f" in {frames[0].name}, {'/'.join(frames[0].filename.split('/')[-2:])}:{frames[0].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
