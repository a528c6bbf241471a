"""Applications for the front door's tests: a bare one with a knob for everything, and a small Quart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import h2.connection
import h2.events
import trio
from quart import request
from quart_trio import QuartTrio

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@attrs.frozen
class Call:
    """The two halves of one ASGI call."""

    receive: Receive
    send: Send


@attrs.define(eq=False)
class App:
    """A bare ASGI application. It keeps each request's exchange, and what `receive` said last."""

    exchanges: list[Any] = attrs.field(factory=list)
    events: list[str] = attrs.field(factory=list)
    begun: trio.Event = attrs.field(factory=trio.Event)
    release: trio.Event = attrs.field(factory=trio.Event)
    bytes_sent: int = 0
    ended: int = 0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        self.exchanges.append(scope["state"]["connection"])
        self.begun.set()
        try:
            await getattr(self, scope["path"].strip("/") or "hello", self.missing)(Call(receive, send))
        finally:
            self.ended += 1

    async def hello(self, call: Call) -> None:
        await answer(call.send, b"hello")

    async def missing(self, call: Call) -> None:
        await answer(call.send, b"", status=404)

    async def echo(self, call: Call) -> None:
        body, more = b"", True
        while more:
            event = await call.receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        await answer(call.send, body)

    async def waits(self, call: Call) -> None:
        await self.release.wait()
        await answer(call.send, b"released")

    async def listens(self, call: Call) -> None:
        while not self.events or self.events[-1] != "http.disconnect":
            self.events.append((await call.receive())["type"])

    async def floods(self, call: Call) -> None:
        """A body without end, to whoever reads it, or does not."""
        await call.send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5_000):
            if self.exchanges[-1].broken:
                return
            await call.send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            self.bytes_sent += 65_536

    async def refuses(self, call: Call) -> None:
        """Answers without reading the body."""
        await answer(call.send, b"too large", status=413)

    async def refuses_late(self, call: Call) -> None:
        """The same, when the queue of what it does not read is full."""
        await self.release.wait()
        await answer(call.send, b"too large", status=413)

    async def large(self, call: Call) -> None:
        await answer(call.send, b"x" * 5_000_000)

    async def two_steps(self, call: Call) -> None:
        """As Quart does it: the whole body, and then an empty last message, here long after the client has hung up."""
        await call.send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await call.send({"type": "http.response.body", "body": b"hello", "more_body": True})
        await self.release.wait()
        await call.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fails(self, _call: Call) -> None:
        raise RecursionError("sbk_secret")

    async def fails_late(self, call: Call) -> None:
        await call.send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])

    async def stuck(self, _call: Call) -> None:
        await trio.sleep_forever()


async def answer(send: Send, body: bytes, *, status: int = 200) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def get(path: str, *, more: bytes = b"") -> bytes:
    return b"GET /" + path.encode() + b" HTTP/1.1\r\nhost: house\r\n" + more + b"\r\n"


def quart_app() -> QuartTrio:
    app = QuartTrio("front door test")

    @app.get("/")
    async def hello() -> str:
        return "hello"

    @app.post("/echo")
    async def echo() -> bytes:
        data: bytes = await request.get_data(as_text=False)  # type: ignore[assignment]
        return data

    return app


def h2_head(path: str) -> list[tuple[str, str]]:
    return [(":method", "GET"), (":path", path), (":authority", "house"), (":scheme", "http")]


async def h2_talk(stream: trio.SocketStream, peer: h2.connection.H2Connection, *, streams: int) -> dict[int, bytes]:
    """Send what `peer` has to say and read until `streams` answers are complete: their bodies."""
    bodies: dict[int, bytes] = {}
    ended = 0
    while ended < streams:
        await stream.send_all(peer.data_to_send())
        data = await stream.receive_some()
        if not data:
            raise EOFError(bodies)
        for event in peer.receive_data(bytes(data)):
            if isinstance(event, h2.events.DataReceived):
                bodies[event.stream_id] = bodies.get(event.stream_id, b"") + event.data
            elif isinstance(event, h2.events.StreamEnded):
                ended += 1
    return bodies
