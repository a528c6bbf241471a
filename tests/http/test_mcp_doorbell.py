"""The doorbell at `/mcp` over real sockets: who hears what, how soon, for how long, and what one that never reads costs."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import trio
from mcp import Client
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.client.streamable_http import streamable_http_client
from mcp_types import NotificationParams

from switchboard.mcp.doorbell import TODO_READY
from tests.houses import Agent, House, Opener, no_leftovers, wait_until
from tests.http.asking import CALM, let_lapse, let_window_pass
from tests.http.listening import connected, push
from tests.http.mcp_talk import Stream, attached, is_troubled, request_bytes, talk
from tests.http.test_doorbell import AT_ONCE_SECONDS, rss_bytes


@pytest.fixture(scope="module")
def house(open_directory: Path, new_database: Callable[[], str]) -> Iterator[House]:
    """A house without sweeps."""
    opener = Opener(open_directory, new_database)
    opened = opener(settings=CALM)
    yield opened
    opener.close()
    no_leftovers(opener.directories)
    assert not is_troubled(opened.log())


@pytest.fixture
def agent(house: House) -> Agent:
    """An endpoint of the test's own."""
    return house.vend()


async def test_first_what_waits_then_every_ring(house: House, agent: Agent) -> None:
    """R25: oldest first, then each ring at once, in both of its forms."""
    waiting = [await push(agent, title=str(n), kind="review") for n in range(3)]
    await trio.sleep(0.5)  # what became pending in this very moment may be told twice: by the first look, and by a later one
    async with attached(house, agent) as stream:
        assert await stream.next_ids(3) == waiting
        assert stream.heard[0] == {"todo_id": waiting[0], "queue": "work", "kind": "review", "source": "api"}
        assert stream.response.headers["x-accel-buffering"] == "no"
        for n in range(3):
            began = trio.current_time()
            todo = await push(agent)
            assert (await stream.next_ids(4 + n))[-1] == todo
            assert trio.current_time() - began < AT_ONCE_SECONDS
        await trio.sleep(1.5)  # a look: what waits on is no news
        assert len(stream.heard) == 6
    assert [told["meta"]["todo_id"] for told in stream.on_channel] == [told["todo_id"] for told in stream.heard]
    assert stream.on_channel[0]["meta"] == {"todo_id": waiting[0], "queue": "work", "kind": "review", "source": "api"}
    assert waiting[0] in stream.on_channel[0]["content"]
    assert len(stream.on_channel[0]["content"].splitlines()) == 1
    assert all(isinstance(value, str) for told in stream.on_channel for value in told["meta"].values())


async def test_c54_a_big_payload_is_not_in_the_notification(house: House, agent: Agent) -> None:
    """C54: whatever the size of queue and payload, ids and names only, in one line."""
    async with attached(house, agent) as stream:
        todo = await push(agent, "a\nb" * 60, payload="x" * 500_000, title="t" * 1_000)
        assert await stream.next_ids(1) == [todo]
        await push(agent)
        await stream.next_ids(2)
    assert stream.heard[0] == {"todo_id": todo, "queue": "a\nb" * 60, "kind": None, "source": "api"}
    assert stream.on_channel[0]["meta"] == {"todo_id": todo, "queue": "a\nb" * 60, "source": "api"}
    assert len(stream.on_channel[0]["content"].splitlines()) == 1


async def test_doorbell_never_crosses_endpoints(house: House, agent: Agent) -> None:
    """SPEC-0003 Doorbell never crosses endpoints, Cross-endpoint queue collision is isolated; nor queues and owners."""
    other, limited = house.vend(), house.vend(queues=["reviews"])
    async with (
        attached(house, agent) as mine,
        attached(house, other) as others,
        attached(house, limited) as scope,
    ):
        todo = await push(agent, "reviews")
        assert await mine.next_ids(1) == [todo]
        (claimed,) = await trio.to_thread.run_sync(partial(agent.claim, queue="reviews"))
        await trio.to_thread.run_sync(agent.verb, "release", claimed)
        assert await mine.next_ids(2) == [todo, todo]
        await push(limited, "reviews", assignee="somebody-else")
        own = await push(limited, "reviews")
        assert await scope.next_ids(1) == [own]
        await trio.sleep(1.5)
        assert others.heard == []
        assert scope.heard[1:] == []


async def test_two_sessions_of_one_endpoint_both_hear(house: House, agent: Agent) -> None:
    """R25: all attached sessions in scope hear it. One that comes again takes the place of its own stream, not of the other."""
    session = await trio.to_thread.run_sync(talk, house, agent)
    async with attached(house, agent, session) as first, attached(house, agent) as other:
        todo = await push(agent)
        assert await first.next_ids(1) == [todo]
        assert await other.next_ids(1) == [todo]
        async with attached(house, agent, session) as second:
            with trio.fail_after(5):
                await first.ended.wait()
            assert not first.cut
            assert (await second.next_ids(1))[0] == todo
            again = await push(agent)
            with trio.fail_after(5):  # by name, not by number: what is new to a stream may be told twice
                await second.hears(again)
                await other.hears(again)


@pytest.mark.parametrize("verb", ["rotate", "revoke"])
async def test_it_ends_with_its_credential(house: House, agent: Agent, verb: str) -> None:
    """R17: the stream ends at once and cleanly, the next call is 401; others hear on."""
    other = house.vend()
    session = await trio.to_thread.run_sync(talk, house, agent)
    async with attached(house, agent, session) as stream, attached(house, other) as others:
        with house.operator() as operator:
            reply = operator.post(f"/operator/v1/endpoints/{agent.name}/{verb}")
            assert reply.status_code == 200
        with trio.fail_after(5):
            await stream.ended.wait()
        assert not stream.cut
        todo = await push(other)
        assert await others.next_ids(1) == [todo]
    assert session.send("ping").status_code == 401
    if verb == "rotate":  # the new credential opens sessions, and not that of the old one
        session.http.headers["Authorization"] = f"Bearer {reply.json()['credential']}"
        assert session.send("ping").status_code == 404
        session.session = None
        session.open()


async def test_a_waiting_claim_ends_with_its_credential(house: House, agent: Agent) -> None:
    """R17: who waits with a dead credential is handed nothing, and is told so."""
    session = await trio.to_thread.run_sync(talk, house, agent)
    told: list[str] = []

    async def wait() -> None:
        told.append(await trio.to_thread.run_sync(partial(session.refused, "claim_next", wait_seconds=30)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.3)
        began = trio.current_time()
        with house.operator() as operator:
            assert operator.post(f"/operator/v1/endpoints/{agent.name}/rotate").status_code == 200
    assert trio.current_time() - began < 5
    assert told[0].startswith("unauthorized: ")


async def test_sweeps_ring(open_house: Opener) -> None:
    """SPEC-0003 Background sweep spans tenants: a reaped lease and a due retry are heard by their endpoint's session."""
    house = open_house(settings={"queue": {"reap_interval_seconds": 0.1, "retry_interval_seconds": 0.1}})
    agent, other = house.vend(), house.vend()
    async with attached(house, agent) as stream, attached(house, other) as others:
        todo = await push(agent)
        for number, make_due in enumerate((let_lapse, let_window_pass), start=2):
            (claimed,) = await trio.to_thread.run_sync(agent.claim)
            if make_due is let_window_pass:
                agent.verb("fail", claimed)
            await trio.to_thread.run_sync(make_due, house, claimed)
            assert await stream.next_ids(number) == [todo] * number
        assert others.heard == []


async def test_c37_fifty_sessions_and_sigterm(open_house: Opener) -> None:
    """C37: each stream comes to a clean end at once, and the house exits 0 within its grace."""
    house = open_house(settings=CALM)
    agent = house.vend()
    async with trio.open_nursery() as nursery:
        streams: list[Stream] = []
        all_there = trio.Event()

        async def listen() -> None:
            async with attached(house, agent) as stream:
                streams.append(stream)
                if len(streams) == 50:
                    all_there.set()
                await stream.ended.wait()

        for _ in range(50):
            nursery.start_soon(listen)
        todo = await push(agent)
        with trio.fail_after(30):
            await all_there.wait()
        for stream in streams:
            assert (await stream.next_ids(1))[0] == todo
        waiting = await trio.to_thread.run_sync(talk, house, agent)
        told: list[dict[str, Any]] = []

        async def wait() -> None:
            claim = partial(waiting.call, "claim_next", queue="nothing", wait_seconds=60)
            told.append(await trio.to_thread.run_sync(claim))

        nursery.start_soon(wait)
        await trio.sleep(0.3)
        began = trio.current_time()
        house.signal()
        assert await trio.to_thread.run_sync(house.process.wait, 20) == 0
        assert trio.current_time() - began < 5
    assert not any(stream.cut for stream in streams)
    assert told == [{"empty": True}]
    assert not is_troubled(house.log())


async def test_c55_a_client_that_never_reads_is_closed_and_costs_nothing(open_house: Opener) -> None:
    """C55: its session ends, its socket is closed; those who read hear everything; memory stays where it was."""
    house = open_house(settings=CALM)
    agent = house.vend()
    session = await trio.to_thread.run_sync(talk, house, agent)
    address = urlsplit(house.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect((address.hostname, address.port))
        deaf.sendall(request_bytes(agent, None, session=session.session))
        deaf.recv(1)
        # The longest rings there are. What a kernel holds for a socket is a few megabytes; a stream is sent one at a time.
        batch = {"todos": [{"queue": "\N{GRINNING FACE}" * 200, "kind": "\N{GRINNING FACE}" * 200}] * 200}
        async with attached(house, agent) as stream:
            for n in range(20):
                assert (await trio.to_thread.run_sync(partial(agent.http.post, "/v1/todos/batch", json=batch))).is_success
                if n == 5:
                    before = rss_bytes(house)
            with trio.fail_after(30):
                last = ""
                while last not in {told["todo_id"] for told in stream.heard}:  # what rings while it is behind is no news
                    last = await push(agent)
                    with trio.move_on_after(1):
                        await stream.hears(last)
        assert rss_bytes(house) - before < 64 * 1024 * 1024
        port = deaf.getsockname()[1]
        wait_until(lambda: not connected(house, port), seconds=40, what="the deaf one's end")
        assert talk(house, agent).call("queues")["queues"][0]["pending"] > 0


class TodoReady(NotificationParams):
    """What the notification says."""

    todo_id: str
    queue: str


class Doorbell(ClientExtension):
    """What a program of the SDK's own client says that it wants to hear."""

    identifier = "dev.switchboard/doorbell"

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.news = trio.Event()

    async def ring(self, told: TodoReady) -> None:
        """Notes it."""
        self.heard.append(told.todo_id)
        self.news.set()

    def notifications(self) -> list[NotificationBinding[Any]]:
        """The one that it knows."""
        return [NotificationBinding(method=TODO_READY, params_type=TodoReady, handler=self.ring)]

    async def hears(self, todo_id: str) -> None:
        """Waits until it has heard of this todo."""
        with trio.fail_after(5):
            while todo_id not in self.heard:
                self.news = trio.Event()
                await self.news.wait()


@asynccontextmanager
async def official_client(house: House, agent: Agent) -> AsyncIterator[tuple[Client, Doorbell]]:
    """The SDK's client, with the doorbell."""
    headers = {"Authorization": f"Bearer {agent.credential}"}
    doorbell = Doorbell()
    async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        transport = streamable_http_client(f"{house.url}/mcp", http_client=http)
        async with Client(transport, extensions=[doorbell]) as client:
            yield client, doorbell


async def test_the_official_client_hears_and_another_endpoints_hears_nothing(house: House, agent: Agent) -> None:
    """R25: what waits, and what becomes pending, by the SDK's own client over HTTP; nothing of it crosses endpoints."""
    waiting = await push(agent)
    async with official_client(house, agent) as (client, doorbell), official_client(house, house.vend()) as (other, deaf):
        await doorbell.hears(waiting)
        made = await client.call_tool("create_todo", {"queue": "work"})
        assert made.structured_content is not None
        await doorbell.hears(made.structured_content["todo"]["id"])
        claimed = await client.call_tool("claim_next", {})
        assert claimed.structured_content is not None
        (todo,) = claimed.structured_content["todos"]
        doorbell.heard.clear()
        await client.call_tool("release", {"todo_id": todo["id"], "lease_token": todo["lease_token"]})
        await doorbell.hears(todo["id"])
        assert (await other.call_tool("claim_next", {})).structured_content == {"empty": True}
        await trio.sleep(1.5)
        assert deaf.heard == []
