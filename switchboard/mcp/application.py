"""`/mcp`: who is calling, from where, with how much; then the SDK, and the doorbell beside each event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final

import trio

from switchboard.endpoint import Endpoint
from switchboard.errors import Invalid, QueueError, Unsupported
from switchboard.http.access import Access
from switchboard.http.bodies import BODY_OVERHEAD_BYTES, LargeBodies, check_encoding, read_body
from switchboard.http.delivery import delivery_of
from switchboard.http.exchange import Receive, Send
from switchboard.http.hearing import Hearing
from switchboard.http.problems import send_nothing, send_problem
from switchboard.mcp.doorbell import ring_through
from switchboard.mcp.exchange import EXCHANGE, OPENS, SESSION_HEADER, McpExchange
from switchboard.mcp.framing import Taken, take_arguments
from switchboard.mcp.opening import Spoken
from switchboard.mcp.origins import check_origin

PATH: Final = "/mcp"
_METHODS: Final = ("GET", "POST", "DELETE")
_LAST_EVENT: Final = b"last-event-id"


class McpApplication:
    """The ASGI application."""

    def __init__(
        self,
        *,
        access: Access,
        hearing: Hearing,
        large_bodies: LargeBodies,
        spoken: Callable[[], Awaitable[Spoken]],
        host: str,
        payload_bytes_max: int,
    ) -> None:
        self._access = access
        self._hearing = hearing
        self._large_bodies = large_bodies
        self._spoken = spoken
        self._host = host
        self._payload_bytes_max = payload_bytes_max

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serves one request."""
        headers = {bytes(name): bytes(value).decode("latin-1") for name, value in scope["headers"]}
        try:
            if scope["method"] not in _METHODS:
                raise Unsupported(detail="This address does not take that method.", status=405)
            check_origin(headers.get(b"origin"), headers.get(b"host"), configured_host=self._host)
            caller = await self._access.endpoint(headers.get(b"authorization"))
            check_encoding(headers.get(b"content-encoding"))
            declared = headers.get(b"content-length", "")
            size = int(declared) if declared.isdecimal() else None
            async with self._large_bodies.room(size, chunked=b"transfer-encoding" in headers) as leave_if_small:
                body = await read_body(_Chunks(receive), declared=size, bytes_max=body_bytes_max(self._payload_bytes_max))
                leave_if_small(len(body))
                await self._serve(scope, headers, caller, take_arguments(body), receive, send)
        except QueueError as error:
            allow = (("Allow", ", ".join(_METHODS)),) if isinstance(error, Unsupported) and error.status == 405 else ()
            await send_problem(send, error, *allow)

    async def _serve(
        self, scope: Any, headers: dict[bytes, str], caller: tuple[Endpoint, bytes], taken: Taken, receive: Receive, send: Send
    ) -> None:
        endpoint, credential_sha256 = caller
        spoken = await self._spoken()
        exchange = McpExchange(
            endpoint=endpoint,
            credential_sha256=credential_sha256,
            delivery=delivery_of(scope),
            taken=taken,
            payload_bytes_max=self._payload_bytes_max,
            opened=spoken.sessions.open,
            door_receive=receive,
            door_send=send,
        )
        session = spoken.sessions.find(headers.get(SESSION_HEADER), exchange.credential_sha256)
        if session is not None and scope["method"] == "DELETE":
            spoken.sessions.end(session)
            await session.gone.wait()
            await send_nothing(send)
            return
        if taken.method == OPENS and session is None:
            spoken.sessions.make_room(endpoint.id)
        # What was missed is never replayed, since attaching begins with what waits; the SDK would answer nothing at all.
        kept = [(name, value) for name, value in scope["headers"] if bytes(name) != _LAST_EVENT]
        try:
            with session.in_use(exchange) if session is not None else nullcontext():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(exchange.watch)
                    if session is not None and scope["method"] == "GET":
                        await session.take_stream(exchange)
                        nursery.start_soon(self._ring, exchange)
                    asked = {**scope, "headers": kept, EXCHANGE: exchange}
                    await spoken.serve(asked, exchange.receive, exchange.send)
                    nursery.cancel_scope.cancel()
        finally:
            await exchange.end()
        if session is not None and exchange.status == 404:  # the SDK has it no more
            spoken.sessions.end(session)

    async def _ring(self, exchange: McpExchange) -> None:
        """Tells the client of a session what it hears; at the end of that, ends its stream."""
        listener = self._hearing.attend(exchange.endpoint, exchange.credential_sha256)
        try:
            await exchange.streaming.wait()
            await ring_through(self._hearing, listener, exchange.tell)
        finally:
            self._hearing.leave(listener)
        exchange.stop()


class _Chunks:
    """A request's body, chunk by chunk."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._more:
            raise StopAsyncIteration
        event = await self._receive()
        if event["type"] == "http.disconnect":
            raise Invalid(detail="The body did not arrive whole.", field="body", status=400)
        self._more = event.get("more_body", False)
        chunk: bytes = event.get("body", b"")
        return chunk


def body_bytes_max(payload_bytes_max: int) -> int:
    """What a request may hold: a payload, and as much beside it as over HTTP."""
    return payload_bytes_max + BODY_OVERHEAD_BYTES
