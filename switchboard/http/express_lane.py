"""The express lane: plain requests to the agents' hot routes, answered straight from the socket.

It serves a connection for as long as its requests are of the one plain spelling that `express_framing` knows and go to a
route of its own; keep-alive and pipelining included, one request after the other. The first that is not is handed over to the
general lane with all bytes read so far, and the connection stays there. Behind the desk both lanes are one: same handlers,
same limits, same errors.

A request takes no task of its own here. A claim that waits ends when its client goes away; of any other request's client that
is noticed when the answer is sent, and what it claimed is undone (R15).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from email.utils import formatdate
from typing import Final

import attrs
import trio

from switchboard.http.call import Reply, Route
from switchboard.http.delivery import Undo
from switchboard.http.desk import Desk, Request, bug_reply, content_of
from switchboard.http.express_framing import Head, read_head
from switchboard.http.guarded_stream import GuardedStream

READ_BYTES_MAX: Final = 64 * 1024


class _Gone(Exception):
    """The client went away before its request was here whole, or while it waited."""


class ExpressLane:
    """Serves connections until they end, or are to be handed over."""

    def __init__(self, *, desk: Desk, routes: Sequence[Route], undo: Undo) -> None:
        self._desk = desk
        self._undo = undo
        self._routes = {route.path: route for route in routes if route.method == "POST" and route.who == "agent"}
        self._date = (0, b"")

    async def serve(self, stream: GuardedStream, closing: trio.Event) -> bool:
        """Answers request after request. True: the rest is for the general lane; what was read waits in the stream.

        Once `closing` is set each answer says that it is the connection's last.
        """
        talk = _Talk(stream)
        while True:
            head = read_head(talk.buffer) if talk.buffer else "more"
            if head == "more":
                if not await talk.more():
                    return False
                continue
            found = None if isinstance(head, str) else self._find(head.path)
            if isinstance(head, str) or found is None:
                stream.unread(bytes(talk.buffer))
                return True
            stream.request_began(http2=False)
            try:
                goes_on = await self._serve_one(talk, head, found[0], found[1], closing)
            finally:
                stream.request_ended()
            if not goes_on:
                await stream.send_eof()
                return False

    def _find(self, path: str) -> tuple[Route, dict[str, str]] | None:
        """The route of this path, and the id in it."""
        route = self._routes.get(path)
        if route is not None:
            return route, {}
        above, _, verb = path.rpartition("/")
        place, _, todo_id = above.rpartition("/")
        route = self._routes.get(f"{place}/{{id}}/{verb}") if todo_id else None
        return None if route is None else (route, {"id": todo_id})

    async def _serve_one(self, talk: _Talk, head: Head, route: Route, path: dict[str, str], closing: trio.Event) -> bool:
        """One request and its answer. True where another one may follow on this connection."""
        body = talk.take(head)
        request = Request(
            path=path,
            header=head.headers.get,
            body=body,
            content_length=head.content_length,
            attended=lambda handle: self._attended(talk, handle),
        )
        try:
            reply = await self._desk.answer(route, request)
        except _Gone:
            return False
        # As around an application of the general lane: a handler's error is a 500, and never the end of more than that.
        except Exception as error:  # noqa: BLE001
            reply = bug_reply(error, method=route.method, place=route.path)
        goes_on = head.keep_alive and not talk.owed_bytes and not closing.is_set()
        arrived = False
        try:
            await talk.stream.send_all(self._in_bytes(reply, close=not goes_on))
            arrived = not talk.stream.broken
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            if not arrived:
                self._undo(reply.claims)
        return goes_on and arrived

    async def _attended(self, talk: _Talk, handle: Callable[[], Awaitable[Reply]]) -> Reply:
        """The reply of a handler that may wait long; ends it when the client goes away."""
        with talk.stream.attended():
            return await handle()
        raise _Gone

    def _in_bytes(self, reply: Reply, *, close: bool) -> bytes:
        content: bytes = content_of(reply)
        more = "".join(f"{name.lower()}: {value}\r\n" for name, value in reply.headers)
        last = "connection: close\r\n" if close else ""
        head = (
            f"HTTP/1.1 {reply.status} \r\ncontent-type: {reply.content_type}\r\ncontent-length: {len(content)}\r\n"
            f"{more}{last}date: "
        )
        return b"".join((head.encode("ascii"), self._now(), b"\r\n\r\n", content))

    def _now(self) -> bytes:
        """The Date of an answer, put into words once a second."""
        second = int(time.time())
        if self._date[0] != second:
            self._date = (second, formatdate(second, usegmt=True).encode("ascii"))
        return self._date[1]


@attrs.define(eq=False)
class _Talk:
    """What has been read of a connection. `owed_bytes` of the present request's body have not been taken yet."""

    stream: GuardedStream
    buffer: bytearray = attrs.field(factory=bytearray)
    owed_bytes: int = 0

    async def more(self) -> bool:
        """Reads on. False where nothing more will come."""
        try:
            data = await self.stream.receive_some(READ_BYTES_MAX)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self.buffer += data
        return bool(data)

    def take(self, head: Head) -> bytes | AsyncIterator[bytes]:
        """Takes a head away from the buffer, and its body: whole where it is here, else piece by piece as it is asked for."""
        end = head.size_bytes + head.content_length
        if len(self.buffer) >= end:
            body = bytes(memoryview(self.buffer)[head.size_bytes : end])
            del self.buffer[:end]
            return body
        del self.buffer[: head.size_bytes]
        self.owed_bytes = head.content_length
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        while self.owed_bytes:
            if not self.buffer and not await self.more():
                raise _Gone
            piece = bytes(self.buffer[: self.owed_bytes])
            del self.buffer[: len(piece)]
            self.owed_bytes -= len(piece)
            yield piece
