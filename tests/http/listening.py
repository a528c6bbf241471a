"""Listening to the doorbell: event streams that a test attaches to, and pushes that do not stop it from hearing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx
import trio

from tests.houses import PLAIN, Agent, House


@attrs.define(eq=False)
class Stream:
    """An event stream under way: what it said, and whether it came to a clean end."""

    response: httpx.Response
    heard: list[dict[str, Any]] = attrs.field(factory=list)
    news: trio.Event = attrs.field(factory=trio.Event)
    text: str = ""
    comments: int = 0
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
        *events, self.text = self.text.split("\n\n")
        for event in events:
            lines = [line.split(": ", 1) for line in event.split("\n")]
            fields = {line[0]: line[1] for line in lines if line[0]}
            self.comments += event.startswith(":")
            if "event" in fields:
                assert fields["event"] == "todo_ready"
                self.heard.append(json.loads(fields["data"]))
                self.news.set()

    async def next_ids(self, number: int, seconds: float = 5) -> list[str]:
        """The ids of the first so many todos that it hears of."""
        with trio.fail_after(seconds):
            while len(self.heard) < number:
                self.news = trio.Event()
                await self.news.wait()
        return [event["todo_id"] for event in self.heard]

    async def hears(self, todo_id: str) -> None:
        """Waits until it has heard of this todo. What another process rings may be told twice: by it, and by a look."""
        with trio.fail_after(5):
            while todo_id not in {event["todo_id"] for event in self.heard}:
                self.news = trio.Event()
                await self.news.wait()


@asynccontextmanager
async def attached(url: str, agent: Agent, *queues: str) -> AsyncIterator[Stream]:
    """Attaches to the house at this address; what already waited has been heard when this begins."""
    headers = {"Authorization": f"Bearer {agent.credential}"}
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False, verify=PLAIN) as http,
        http.stream("GET", "/v1/doorbell", params={"queue": list(queues)}) as response,
        trio.open_nursery() as nursery,
    ):
        assert response.status_code == 200
        stream = Stream(response)
        nursery.start_soon(stream.read)
        yield stream
        nursery.cancel_scope.cancel()


async def push(agent: Agent, queue: str = "work", **fields: Any) -> str:
    """Makes a todo, in a thread; its id."""
    todo = await trio.to_thread.run_sync(partial(agent.push, queue, **fields))
    return str(todo["id"])


def connected(house: House, port: int) -> bool:
    """Whether the house still has an open socket to this port of a client."""
    ours, theirs = (f":{number:04X}" for number in (urlsplit(house.url).port, port))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(words[1].endswith(ours) and words[2].endswith(theirs) and words[9] != "0" for words in lines)
