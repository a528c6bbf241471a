"""`GET /v1/doorbell` over real sockets: who hears what, how soon, for how long, and what a client that does not read costs."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import pytest
import trio
from trio.testing import MockClock

from switchboard.endpoint import Endpoint
from switchboard.http.agent_doorbell import COMMENT_SECONDS, AgentDoorbell
from switchboard.http.call import Call
from switchboard.http.hearing import Hearing
from switchboard.http.requests import DoorbellQuery, NoBody
from switchboard.todo import NOWHERE as NOBODY
from switchboard.waiting_room import WaitingRoom
from tests.houses import Agent, House, Opener, wait_until
from tests.http.asking import CALM, execute, let_lapse, let_window_pass, problem
from tests.http.listening import Stream, attached, connected, push

AT_ONCE_SECONDS = 0.5
"""A ring takes milliseconds; the look that makes up for a lost one comes once a second, and would pass for no ring."""

RELAY = "application_name = 'switchboard relay' and datname = current_database()"


@pytest.fixture(scope="module")
def house(calm_house: House) -> House:
    """A house without sweeps."""
    return calm_house


@pytest.fixture
def agent(house: House) -> Agent:
    """An endpoint of the test's own."""
    return house.vend()


async def test_first_what_waits_then_every_ring(house: House, agent: Agent) -> None:
    """R25: oldest first, each once; headers that keep proxies from holding it back; ids and names, no payload."""
    waiting = [await push(agent, title=str(n), payload={"secret": n}, kind="review") for n in range(3)]
    await trio.sleep(0.5)  # what became pending in this very moment may be told twice: by the first look, and by a later one
    async with attached(house.url, agent) as stream:
        assert await stream.next_ids(3) == waiting
        assert stream.heard[0] == {"todo_id": waiting[0], "queue": "work", "kind": "review", "source": "api"}
        assert stream.response.headers["content-type"] == "text/event-stream"
        assert stream.response.headers["x-accel-buffering"] == "no"
        assert "no-cache" in stream.response.headers["cache-control"]
        for n in range(3):
            began = trio.current_time()
            todo = await push(agent)
            assert (await stream.next_ids(4 + n))[-1] == todo
            assert trio.current_time() - began < AT_ONCE_SECONDS
        await trio.sleep(2.5)  # two looks: what waits on is no news
        assert len(stream.heard) == 6


async def test_what_it_was_shown_is_no_news(house: House, agent: Agent) -> None:
    """A todo that is pushed at the moment in which a stream attaches is told once: by the first look, by no later one."""
    todo = await push(agent)
    async with attached(house.url, agent) as stream:
        await stream.next_ids(1)
        await trio.sleep(2.5)  # two looks
        assert [told["todo_id"] for told in stream.heard] == [todo]


async def test_doorbell_never_crosses_endpoints(house: House, agent: Agent) -> None:
    """SPEC-0003 Doorbell never crosses endpoints, Cross-endpoint queue collision is isolated."""
    other = house.vend()
    async with attached(house.url, agent, "reviews") as mine, attached(house.url, other, "reviews") as others:
        todo = await push(agent, "reviews")
        assert await mine.next_ids(1) == [todo]
        (claimed,) = await trio.to_thread.run_sync(partial(agent.claim, queue="reviews"))
        await trio.to_thread.run_sync(agent.verb, "release", claimed)
        assert await mine.next_ids(2) == [todo, todo]
        await trio.sleep(1.5)
        assert others.heard == []


async def test_only_its_queues_and_what_its_owner_may_claim(house: House, agent: Agent) -> None:
    """R25: by queue, then by assignee; all streams in scope hear it."""
    limited = house.vend(queues=["a", "b"])
    async with (
        attached(house.url, limited) as scope,
        attached(house.url, limited, "b") as only_b,
        attached(house.url, limited, "a", "b") as both,
    ):
        a, b = await push(limited, "a"), await push(limited, "b")
        await push(limited, "a", assignee="somebody-else")
        mine = await push(limited, "b", assignee=limited.name)
        assert await only_b.next_ids(2) == [b, mine]
        assert await scope.next_ids(3) == [a, b, mine]
        assert await both.next_ids(3) == [a, b, mine]
    for query, field in (({"queue": "c"}, None), ({"queue": ""}, "queue"), ({"queues": "a"}, "queues")):
        reply = limited.http.get("/v1/doorbell", params=query)
        problem(reply, 403, "forbidden") if field is None else problem(reply, 422, "invalid", field)


@pytest.mark.parametrize("verb", ["rotate", "revoke"])
async def test_it_ends_with_its_credential(house: House, agent: Agent, verb: str) -> None:
    """R17: at once and cleanly; others hear on."""
    other = house.vend()
    async with attached(house.url, agent) as stream, attached(house.url, other) as others:
        with house.operator() as operator:
            assert operator.post(f"/operator/v1/endpoints/{agent.name}/{verb}").status_code == 200
        with trio.fail_after(1):
            await stream.ended.wait()
        assert not stream.cut
        todo = await push(other)
        assert await others.next_ids(1) == [todo]
    assert agent.http.get("/v1/doorbell").status_code == 401


async def test_sweeps_ring(open_house: Opener) -> None:
    """SPEC-0003 Background sweep spans tenants: what the reaper and the retry scheduler put back is heard by its endpoint."""
    house = open_house(settings={"queue": {"reap_interval_seconds": 0.1, "retry_interval_seconds": 0.1}})
    agent, other = house.vend(), house.vend()
    async with attached(house.url, agent) as stream, attached(house.url, other) as others:
        todo = await push(agent)
        for number, make_due in enumerate((let_lapse, let_window_pass), start=2):
            (claimed,) = await trio.to_thread.run_sync(agent.claim)
            if make_due is let_window_pass:
                agent.verb("fail", claimed)
            await trio.to_thread.run_sync(make_due, house, claimed)
            assert await stream.next_ids(number) == [todo] * number
        assert others.heard == []


async def test_c37_fifty_streams_and_sigterm(open_house: Opener) -> None:
    """C37: each comes to a clean end at once, and the house exits 0 within its grace."""
    house = open_house(settings=CALM)
    agent = house.vend()
    async with trio.open_nursery() as nursery:
        streams: list[Stream] = []
        all_there = trio.Event()

        async def listen() -> None:
            async with attached(house.url, agent) as stream:
                streams.append(stream)
                if len(streams) == 50:
                    all_there.set()
                await stream.ended.wait()

        for _ in range(50):
            nursery.start_soon(listen)
        todo = await push(agent)
        with trio.fail_after(20):
            await all_there.wait()
        for stream in streams:
            assert (await stream.next_ids(1))[0] == todo
        began = trio.current_time()
        house.signal()
        assert await trio.to_thread.run_sync(house.process.wait, 20) == 0
        assert trio.current_time() - began < 5
    assert not any(stream.cut for stream in streams)


async def test_c55_a_client_that_never_reads_is_closed_and_costs_nothing(open_house: Opener) -> None:
    """C55: its buffer is bounded, its socket is closed; those who read hear everything; memory stays where it was."""
    house = open_house(settings=CALM)
    agent = house.vend()
    address = urlsplit(house.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect((address.hostname, address.port))
        deaf.sendall(f"GET /v1/doorbell HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {agent.credential}\r\n\r\n".encode())
        deaf.recv(1)
        before = rss_bytes(house)
        # The longest rings there are. What a kernel holds for a socket is a few megabytes; a stream is sent a batch at a time.
        batch = {"todos": [{"queue": "\N{GRINNING FACE}" * 200, "kind": "\N{GRINNING FACE}" * 200}] * 1_000}
        async with attached(house.url, agent) as stream:
            for _ in range(14):
                assert (await trio.to_thread.run_sync(partial(agent.http.post, "/v1/todos/batch", json=batch))).is_success
            last = await push(agent)
            with trio.fail_after(20):
                while stream.heard[-1:] == [] or stream.heard[-1]["todo_id"] != last:
                    stream.news = trio.Event()
                    await stream.news.wait()
        assert rss_bytes(house) - before < 64 * 1024 * 1024
        port = deaf.getsockname()[1]
        wait_until(lambda: not connected(house, port), seconds=30, what="the deaf one's end")


async def test_c54_rings_cross_processes_and_a_lost_line_only_delays(open_house: Opener) -> None:
    """C54: ids only, whatever the size of queue and payload; with the line killed, a look makes up for it; then it is back.

    R17: a revoke in one process ends the streams of the other.
    """
    one = open_house(settings=CALM)
    two = open_house(settings=CALM, database=one.database)
    agent = one.vend()
    there = attrs.evolve(agent, http=two.client(agent.credential))
    async with attached(one.url, agent) as stream:
        await push(there)  # whatever opens its connections
        await stream.next_ids(1)
        for _ in range(3):
            began = trio.current_time()
            todo = await push(there, "q" * 200, payload="x" * 100_000, title="t" * 1_000)
            await stream.hears(todo)
            assert trio.current_time() - began < AT_ONCE_SECONDS
        execute(one, f"select pg_terminate_backend(pid) from pg_stat_activity where {RELAY}")
        began = trio.current_time()
        todo = await push(there)
        await stream.hears(todo)
        assert trio.current_time() - began < 3
        wait_until(lambda: listeners(one) == 2, what="both lines back")
        began = trio.current_time()
        todo = await push(there)
        await stream.hears(todo)
        assert trio.current_time() - began < AT_ONCE_SECONDS
        with two.operator() as operator:
            assert operator.post(f"/operator/v1/endpoints/{agent.name}/revoke").status_code == 200
        with trio.fail_after(1.5):
            await stream.ended.wait()
        assert not stream.cut


async def test_while_it_is_quiet_it_says_so(autojump_clock: MockClock) -> None:
    """A comment every 15 s, so that proxies and clients know that the line is alive; first of all, when to come again."""
    room = WaitingRoom()

    async def nothing_waits(_work: object, **_: object) -> list[object]:
        return []

    hearing = Hearing(room=room, transact=nothing_waits)  # type: ignore[arg-type]  # the one question it asks
    doorbell = AgentDoorbell(hearing)
    endpoint = Endpoint(id=NOBODY, name="a", queues=None, created_at=None, revoked_at=None)  # type: ignore[arg-type]
    call = Call(path={}, body=NoBody(), query=DoorbellQuery(), caller=endpoint, credential_sha256=b"c")
    reply = await doorbell.listen(call)
    pieces = reply.content
    assert isinstance(pieces, AsyncGenerator)
    async with aclosing(pieces):
        assert (await anext(pieces)).startswith(b"retry: ")
        for number in (1, 2):
            assert (await anext(pieces)).startswith(b":")
            assert trio.current_time() == number * COMMENT_SECONDS
    assert len(room) == 1
    assert reply.over is not None
    reply.over()
    assert len(room) == 0


def rss_bytes(house: House) -> int:
    """What the house holds in memory."""
    status = Path(f"/proc/{house.process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def listeners(house: House) -> int:
    """Sessions on which processes of its database tell each other what rings."""
    (row,) = execute(house, f"select count(*) from pg_stat_activity where {RELAY}")
    return int(row[0])
