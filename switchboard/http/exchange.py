"""One request and its answer, between the server's connection and the application: did the answer reach the socket?

The application finds its exchange as `scope["state"]["connection"]`. R15 asks it, once the application is done, whether
the answer arrived: `answered` is true only if its last byte was taken by the client's socket.

Here the application's errors stop too: an exception becomes a 500 and a log line, never the end of more than this
request. WebSockets are refused: the house speaks none, and the code behind an upgrade is the least tried there is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

import attrs
import trio

from switchboard.http.guarded_stream import GuardedStream
from switchboard.supervisor import contain

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]

# How long one step of an answer may stand still, beside the stream's bound on each send: an HTTP/2 client can withhold its
# window without the socket ever being full. A full claim (16 MiB) over HTTP/2 passes at 280 KB a second.
ANSWER_SECONDS_MAX = 60.0

# A proxy's request line: scheme and authority, then the path that we serve.
_ABSOLUTE_FORM = re.compile(rb"https?://[^/?#]+(/.*)?", re.IGNORECASE)

# A host name, an IPv4 or a bracketed IPv6 address, and a port. Quart fails on others before it has a request to blame.
_HOST = re.compile(rb"(|\[[0-9A-Fa-f:.]{2,45}\]|([A-Za-z0-9_-]{1,63}\.){0,8}[A-Za-z0-9_-]{1,63}\.?)(:[0-9]{0,5})?")


def is_host(value: bytes) -> bool:
    """Whether a Host header names a host."""
    return _HOST.fullmatch(value) is not None


class ServerStream(Protocol):
    """What the server knows of one request. An HTTP/2 client can give up one of many, and its answers wait in a buffer."""

    def is_open(self) -> bool:
        """False once the client gave the request up, or its connection failed."""

    def is_read(self) -> bool:
        """True once the request's body is here whole. An HTTP/1.1 connection that is answered before cannot be used again."""

    async def drained(self) -> None:
        """Wait until the body sent so far has left the buffer."""

    def is_sent(self) -> bool:
        """True once nothing of the answer is left in the buffer, the mark of its end included."""


@attrs.define(kw_only=True, eq=False)
class Exchange:
    """What the application sees of its connection. Also its `receive` and `send`."""

    stream: GuardedStream
    http2: bool
    closing: trio.Event
    server: ServerStream
    server_receive: Receive
    server_send: Send

    # True when the last byte of the answer was taken by the socket.
    answered: bool = attrs.field(init=False, default=False)
    started: bool = attrs.field(init=False, default=False)
    _request_read: bool = attrs.field(init=False, default=False)
    _lost: bool = attrs.field(init=False, default=False)
    _trailers: bool = attrs.field(init=False, default=False)
    _complete: bool = attrs.field(init=False, default=False)
    _length: int | None = attrs.field(init=False, default=None)
    _body_bytes: int = attrs.field(init=False, default=0)

    @property
    def broken(self) -> bool:
        """True when the answer did not reach the socket and will not: the client is gone, or a send failed."""
        return not self.answered and (self._lost or self.stream.gone)

    async def receive(self) -> Any:
        """The server's next event for this request: body, then `http.disconnect` once the client is gone."""
        event = await self.server_receive()
        if event["type"] == "http.disconnect":
            self._lost = self._lost or not self._complete
        elif not event.get("more_body"):
            self._request_read = True
        return event

    async def send(self, message: Message) -> None:
        """Pass a step of the answer on, bounded. To a client that is gone nothing is sent, as ASGI has it."""
        step, last = self._judge(message)
        if step is None or self.stream.gone or not self.server.is_open():
            self._lost = self._lost or step is not None
            # An application that only ever sends must not spin.
            await trio.lowlevel.checkpoint()
            return

        # As soon as an answer is complete Hypercorn tells the application `http.disconnect`, and Quart then cancels the
        # task that is still inside this very send: its connection would be left without its clock or its close, and a
        # delivered answer would look like a failed one. So the last step runs to its end, within its bound.
        with (
            trio.CancelScope(shield=last) as scope,
            self.stream.answering(scope, seconds=ANSWER_SECONDS_MAX, http2=self.http2),
        ):
            if last and not self._request_read:
                await self._send_unread(step)
            else:
                await self.server_send(step)
            if self.http2:
                await (self.stream.wait_sent(self.server.is_sent) if last else self.server.drained())
        if scope.cancelled_caught:
            self._lost = True
            if not self.stream.gone:
                self.stream.kill()
        elif last:
            self.answered = not self.stream.broken
            self._lost = self._lost or not self.answered

    async def answer_problem(self, status: int, title: str, code: str, detail: str | None = None) -> None:
        """Answer with problem+json (RFC 9457), where there is no application to do it."""
        problem = {"type": "about:blank", "title": title, "status": status, "code": code}
        if detail is not None:
            problem["detail"] = detail
        body = json.dumps(problem).encode()
        headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers.append((b"retry-after", b"1"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send_unread(self, step: Message) -> None:
        """Send the last step of an answer to a request whose body the application did not read to its end.

        In it Hypercorn puts an event into the application's queue, which may be full of that body: somebody must read.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._discard)
            await self.server_send(step)
            nursery.cancel_scope.cancel()

    async def _discard(self) -> None:
        while (await self.server_receive())["type"] != "http.disconnect":
            pass

    def _judge(self, message: Message) -> tuple[Message | None, bool]:
        """What to pass on (None: nothing more), and whether it completes the answer."""
        kind = message["type"]
        if kind == "http.response.start":
            self.started = True
            self._trailers = bool(message.get("trailers"))
            headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", [])]
            declared = dict(headers).get(b"content-length", b"")
            self._length = int(declared) if declared.isdigit() else None
            # An answer that is faster than the body ends the connection (a 401 or 503 needs no body to know). A client
            # that is not told sends its next request into a socket that nobody reads, and hears nothing.
            if not self.http2 and (self.closing.is_set() or not self.server.is_read()):
                headers = [header for header in headers if header[0] != b"connection"] + [(b"connection", b"close")]
            return {**message, "headers": headers}, False
        last = False
        if kind == "http.response.body":
            if self._complete and not message.get("body"):
                return None, False
            self._body_bytes += len(message.get("body", b""))
            # A body that has reached its declared length is complete, whether or not the application says so yet: a
            # client that has read it may hang up before an empty last message could be sent.
            last = not self._trailers and (not message.get("more_body") or self._body_bytes == self._length)
            message = {**message, "more_body": False} if last else message
        elif kind == "http.response.trailers":
            last = not message.get("more_trailers")
        self._complete = self._complete or last
        return message, last


async def serve_exchange(app: Application, scope: Any, exchange: Exchange, *, failed: Callable[[BaseException], None]) -> None:
    """Run `app` for one request. Exceptions go to `failed`; the client gets a 500 if nothing was sent to it yet."""
    failures: list[Exception] = []
    await contain(partial(_serve, app, scope, exchange), failed=failures.append)
    for error in failures:
        failed(error)
        if scope["type"] == "http" and not exchange.answered:
            await contain(partial(_apologise, exchange), failed=failed)


async def _serve(app: Application, scope: Any, exchange: Exchange) -> None:
    if scope["type"] == "websocket":
        await _refuse_websocket(exchange)
    elif not _to_origin_form(scope):
        await exchange.answer_problem(400, "Invalid request", "invalid", "The request target is not a path.")
    elif not all(is_host(value) for name, value in scope["headers"] if name == b"host"):
        await exchange.answer_problem(400, "Invalid request", "invalid", "The Host header is not a host name.")
    else:
        await app(scope, exchange.receive, exchange.send)


async def _apologise(exchange: Exchange) -> None:
    if not exchange.started:
        await exchange.answer_problem(500, "Internal error", "internal")
    elif exchange.http2:
        # Hypercorn would forget the stream without a word to the client, which then waits for ever.
        exchange.stream.kill()


def _to_origin_form(scope: Any) -> bool:
    """Make the target a path that starts with "/". False where it is none: `*`, `host:port`, a relative one."""
    raw = scope["raw_path"]
    if not raw.startswith(b"/"):
        absolute = _ABSOLUTE_FORM.fullmatch(raw)
        if absolute is None:
            return False
        scope["raw_path"] = absolute[1] or b"/"
        scope["path"] = unquote(scope["raw_path"].decode("ascii"))
    return True


async def _refuse_websocket(exchange: Exchange) -> None:
    if not exchange.server.is_open():
        # More bytes than the upgrade came with it: Hypercorn has refused already, and a second answer is an error.
        return
    body = b'{"type":"about:blank","title":"Unsupported","status":400,"code":"unsupported"}'
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await exchange.server_send({"type": "websocket.http.response.start", "status": 400, "headers": headers})
    await exchange.server_send({"type": "websocket.http.response.body", "body": body, "more_body": False})
