"""A plain MCP client for tests: every byte of a request is the test's own, and what comes back is shown as it came."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import attrs
import httpx
import trio

from tests.houses import PLAIN, Agent, House

BOTH = "application/json, text/event-stream"
VERSION = "2025-11-25"
TODO_READY = "notifications/switchboard/todo_ready"
CHANNEL = "notifications/claude/channel"
HELLO: Mapping[str, Any] = {
    "protocolVersion": VERSION,
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@attrs.define(eq=False)
class Talk:
    """One session under way, or what asks for one."""

    http: httpx.Client = attrs.field(repr=False)
    session: str | None = None
    _ids: count[int] = attrs.field(factory=lambda: count(1))

    def headers(self) -> dict[str, str]:
        """Of every request of this session."""
        session = {} if self.session is None else {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": VERSION}
        return {"Accept": BOTH, **session}

    def send(self, method: str, params: Mapping[str, Any] | None = None, **headers: str) -> httpx.Response:
        """Sends a request; returns the whole answer."""
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}
        return self.http.post("/mcp", json=message, headers=self.headers() | headers)

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends a request; returns its result."""
        reply = self.send(method, params)
        assert reply.status_code == 200, reply.text
        result: dict[str, Any] = reply.json()["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Calls a tool; returns its structured answer, which its text says as well."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert result["isError"] is False, result
        answer: dict[str, Any] = result["structuredContent"]
        assert [json.loads(content["text"]) for content in result["content"]] == [answer]
        return answer

    def refused(self, tool: str, **arguments: Any) -> str:
        """Calls a tool; returns the text of its error."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert result["isError"] is True, result
        assert "structuredContent" not in result
        (content,) = result["content"]
        return str(content["text"])

    def open(self) -> Talk:
        """Opens the session."""
        reply = self.send("initialize", HELLO)
        assert reply.status_code == 200, reply.text
        self.session = reply.headers["mcp-session-id"]
        said = self.http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=self.headers())
        assert said.status_code == 202, said.text
        return self

    def end(self) -> httpx.Response:
        """Ends the session."""
        return self.http.delete("/mcp", headers=self.headers())


def talk(house: House, agent: Agent) -> Talk:
    """A session of this agent's."""
    return Talk(house.client(agent.credential)).open()


def request_bytes(
    agent: Agent, message: Mapping[str, Any] | None, *, session: str | None = None, version: str = VERSION, **headers: str
) -> bytes:
    """A whole request for a plain socket: the POST of a message, or the GET of the event stream."""
    body = b"" if message is None else json.dumps(message).encode()
    fields = {
        "Host": "house",
        "Authorization": f"Bearer {agent.credential}",
        "Accept": BOTH,
        "MCP-Protocol-Version": version,
        **({} if session is None else {"Mcp-Session-Id": session}),
        **({} if message is None else {"Content-Type": "application/json", "Content-Length": str(len(body))}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{'GET' if message is None else 'POST'} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def is_troubled(log: str) -> list[str]:
    """What a house has logged that nobody should read: faults of its own, and warnings of what it stands on."""
    return [line for line in log.splitlines() if "raceback" in line or "Warning" in line or '"level": "error"' in line]


@attrs.define(eq=False)
class Stream:
    """The event stream of a session: what it said, and whether it came to a clean end."""

    response: httpx.Response
    heard: list[dict[str, Any]] = attrs.field(factory=list)
    on_channel: list[dict[str, Any]] = attrs.field(factory=list)
    news: trio.Event = attrs.field(factory=trio.Event)
    text: str = ""
    ended: trio.Event = attrs.field(factory=trio.Event)
    cut: bool = False

    async def read(self) -> None:
        """Reads until the end."""
        try:
            async for piece in self.response.aiter_text():
                self.text += piece
                self._note()
        except httpx.TransportError:
            self.cut = True
        self.ended.set()

    def _note(self) -> None:
        *events, self.text = self.text.split("\r\n\r\n")
        for event in events:
            for line in event.split("\r\n"):
                if line.startswith("data: "):
                    message = json.loads(line.removeprefix("data: "))
                    {TODO_READY: self.heard, CHANNEL: self.on_channel}[message["method"]].append(message["params"])
        self.news.set()

    async def hears(self, todo_id: str) -> None:
        """Waits until it has heard of this todo."""
        while todo_id not in {told["todo_id"] for told in self.heard}:
            self.news = trio.Event()
            await self.news.wait()

    async def next_ids(self, number: int, seconds: float = 5) -> list[str]:
        """The ids of the first so many todos that it hears of."""
        with trio.fail_after(seconds):
            while len(self.heard) < number:
                self.news = trio.Event()
                await self.news.wait()
        return [told["todo_id"] for told in self.heard]


@asynccontextmanager
async def attached(house: House, agent: Agent, session: Talk | None = None) -> AsyncIterator[Stream]:
    """Opens a session, or takes this one, and its event stream."""
    mine = await trio.to_thread.run_sync(talk, house, agent) if session is None else session
    headers = mine.headers() | {"Authorization": f"Bearer {agent.credential}", "Accept": "text/event-stream"}
    async with (
        httpx.AsyncClient(base_url=house.url, headers=headers, timeout=60, trust_env=False, verify=PLAIN) as http,
        http.stream("GET", "/mcp") as response,
        trio.open_nursery() as nursery,
    ):
        assert response.status_code == 200
        stream = Stream(response)
        nursery.start_soon(stream.read)
        with trio.fail_after(5):
            await stream.news.wait()  # what already waited has been heard: nothing is told twice from here on
        yield stream
        nursery.cancel_scope.cancel()
