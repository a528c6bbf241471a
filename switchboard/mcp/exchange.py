"""One request to `/mcp` and its answer, between the front door and the SDK.

A tool runs in the task of its session, not in that of the request that called it. Here the two meet: a client that goes away
cancels its call, and the answer of a call is put into the response that carries it. Only then are the claims in it handed over
(R15); an answer that found no response to go into is undone when the request is over, or at once if that is over already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import structlog
import trio

from switchboard.endpoint import Endpoint
from switchboard.errors import Conflict, Invalid, QueueError, TooLarge
from switchboard.http.call import Call, Reply
from switchboard.http.decoding import decode_body
from switchboard.http.delivery import Delivery
from switchboard.http.exchange import Message, Receive, Send
from switchboard.http.problems import reply_of
from switchboard.mcp.framing import Mark, Taken
from switchboard.mcp.tools import Tool
from switchboard.supervisor import contain

EXCHANGE: Final = "switchboard.mcp"
"""Where a request's scope holds its exchange."""

SESSION_HEADER: Final = b"mcp-session-id"
OPENS: Final = "initialize"
"""The method that opens a session."""

_GONE: Final = "unavailable: The request was given up."

_log = structlog.get_logger("mcp")


@attrs.define(kw_only=True, eq=False)
class McpExchange:
    """What the SDK sees of its connection: its `receive` and its `send`."""

    endpoint: Endpoint
    credential_sha256: bytes = attrs.field(repr=False)
    delivery: Delivery
    taken: Taken
    payload_bytes_max: int
    door_receive: Receive
    door_send: Send
    opened: Callable[[str, McpExchange], None]
    """Is told of a session that this request opens, before its client is."""
    mark: Mark = attrs.field(factory=Mark)
    status: int = 0
    """Of the answer, once it has begun."""
    headers: Mapping[bytes, bytes] = attrs.field(factory=dict)
    """Of the answer as well, their names in lower case."""
    streaming: trio.Event = attrs.field(factory=trio.Event)
    """The answer is an event stream, and has begun."""
    over: trio.Event = attrs.field(factory=trio.Event)
    _read: bool = False
    _stopped: trio.Event = attrs.field(factory=trio.Event)
    _calls: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _sending: trio.Lock = attrs.field(factory=trio.Lock)
    _start: Message | None = None
    _complete: bool = False
    _answer: tuple[bytes, Reply] | None = None

    async def watch(self) -> None:
        """Ends what this request asked for once its client is gone."""
        while (await self.door_receive())["type"] != "http.disconnect":
            pass
        self.stop()

    def stop(self) -> None:
        """Nobody waits for this any more: the SDK is told that the client is gone, and a tool that is called is cancelled."""
        self._stopped.set()
        self._calls.cancel()

    async def receive(self) -> Message:
        """The SDK's `receive`: the whole body, then the end."""
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": self.taken.body, "more_body": False}
        await self._stopped.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """The SDK's `send`. The head of an answer that is no stream waits for its body, whose length is not known before."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {bytes(name).lower(): bytes(value) for name, value in message["headers"]}
            if self.taken.method == OPENS and self.status == 200 and SESSION_HEADER in self.headers:
                self.opened(self.headers[SESSION_HEADER].decode(), self)
            if self.headers.get(b"content-type", b"").startswith(b"text/event-stream"):
                await self._pass_on(message)
                self.streaming.set()
            else:
                self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            body = self._with_answer(message.get("body", b""))
            message = {**message, "body": body}
            kept = [(name, value) for name, value in start["headers"] if bytes(name).lower() != b"content-length"]
            length = [] if message.get("more_body") else [(b"content-length", str(len(body)).encode())]
            await self._pass_on({**start, "headers": kept + length})
        await self._pass_on(message)

    async def tell(self, events: bytes) -> None:
        """Sends events of the house's own on the stream, between those of the SDK."""
        await self._pass_on({"type": "http.response.body", "body": events, "more_body": True})

    async def end(self) -> None:
        """The SDK is done with this request. A stream that it left open comes to a clean end."""
        self.over.set()
        left, self._answer = self._answer, None
        if left is not None:
            self.delivery.undo(left[1].claims)
        if self.streaming.is_set() and not self._complete:
            await self._pass_on({"type": "http.response.body", "body": b"", "more_body": False})

    async def call(self, tool: Tool) -> str | None:
        """Calls the tool with the arguments of this request. Returns what is wrong; None where its answer is ready to go."""
        problem: str | None = _GONE
        bugs: list[Exception] = []

        async def answer() -> None:
            nonlocal problem
            try:
                given = decode_body(self.taken.arguments, tool.takes, payload_bytes_max=self.payload_bytes_max)
                asked: Call[Any, Any] = tool.call_of(given, self.endpoint, self.credential_sha256)
                self._keep(tool, await reply_of(tool.handler, asked, place=f"/mcp {tool.name}"))
                problem = None
            except QueueError as error:
                problem = told(error)

        with self._calls:
            await contain(answer, failed=bugs.append)
        if bugs:
            _log.error("tool_failed", tool=tool.name, exc_info=bugs[0])
            return told(QueueError(detail=""))
        return problem

    async def _pass_on(self, message: Message) -> None:
        async with self._sending:
            if not self._complete:
                self._complete = message["type"] == "http.response.body" and not message.get("more_body")
                await self.door_send(message)

    def _keep(self, tool: Tool, reply: Reply) -> None:
        """Keeps the answer for the response that will carry it."""
        if self.over.is_set():
            self.delivery.undo(reply.claims)
        else:
            self._answer = (tool.answer_of(reply), reply)

    def _with_answer(self, body: bytes) -> bytes:
        if self._answer is None:
            return body
        answer, reply = self._answer
        whole = self.mark.replaced(body, answer)
        if whole is None:  # this is another answer than that of the tool: the end will undo what nobody heard of
            return body
        self._answer = None
        self.delivery.hand_over(reply.claims)
        return whole


def told(error: QueueError) -> str:
    """An error as a tool says it: `code: message`, the field that is wrong, and what is so instead."""
    if error.code == "internal":
        return f"internal: {error.title}."
    facts: dict[str, object] = {}
    if isinstance(error, Invalid | TooLarge) and error.field is not None:
        facts["field"] = error.field
    if isinstance(error, Conflict):
        facts |= {"state": error.state} if error.state is not None else {}
        facts |= {"already": "true"} if error.already else {}
        facts |= {"todo_id": error.todo_id} if error.todo_id is not None else {}
    return f"{error.code}: {error.detail}" + (f" ({', '.join(f'{k}: {v}' for k, v in facts.items())})" if facts else "")
