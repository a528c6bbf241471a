"""Claims that wait: `wait_seconds` (R25). A ring wakes the right one, no ring costs more than a second, nobody polls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from statistics import median
from typing import Any
from uuid import uuid4

import httpx
import pytest
import trio

from tests.houses import Agent, House, Opener
from tests.http.asking import CALM, dead_letter, execute, let_lapse, let_window_pass, many, problem

AT_ONCE_SECONDS = 0.5
"""A ring takes milliseconds. The look that waiters take for themselves comes once a second, and would pass for no ring."""

SEATED_SECONDS = 0.3
"""How long a claim gets to be sent. What it does once it sits is nothing, so nothing tells that from outside."""


@pytest.fixture(scope="module")
def house(each_lane: House) -> House:
    """A house without sweeps, asked through either lane."""
    return each_lane


@pytest.fixture
def agent(house: House) -> Agent:
    """An endpoint of the test's own."""
    return house.vend()


class Waiters:
    """Waiting claims under way, and what became of each: its todos, and when."""

    def __init__(self, nursery: trio.Nursery, http: httpx.AsyncClient) -> None:
        self._nursery = nursery
        self._http = http
        self.todos: dict[str, list[dict[str, Any]]] = {}
        self.ended_at: dict[str, float] = {}

    async def sit(self, *names: str, wait_seconds: float, http: httpx.AsyncClient | None = None, **fields: Any) -> None:
        """Sits claims down, one after the other in this order; each is its own owner unless told otherwise."""
        for name in names:
            self._nursery.start_soon(
                self._wait, http or self._http, name, {"owner": name, "wait_seconds": wait_seconds} | fields
            )
            await trio.sleep(SEATED_SECONDS / len(names))
        # Claims go through one lane in the order of their arrival: once a few later ones are answered, these have looked.
        for _ in range(3):
            assert (await self._http.post(f"/v1/todos/{uuid4()}/claim")).status_code == 404

    async def _wait(self, http: httpx.AsyncClient, name: str, body: dict[str, Any]) -> None:
        reply = await http.post("/v1/claims", json=body)
        assert reply.status_code == 200, reply.text
        self.todos[name] = reply.json()["todos"]
        self.ended_at[name] = trio.current_time()

    def ids(self, name: str) -> list[str]:
        """The ids of the todos that this claim got."""
        return [todo["id"] for todo in self.todos[name]]


async def test_it_returns_as_soon_as_a_todo_is_created(house: House, agent: Agent) -> None:
    """Well under a second, time after time."""
    took = []
    async with many(house, agent) as http:
        for n in range(5):
            async with trio.open_nursery() as nursery:
                waiters = Waiters(nursery, http)
                await waiters.sit("w1", wait_seconds=20)
                began = trio.current_time()
                reply = await http.post("/v1/todos", json={"queue": "work", "title": str(n)})
            took.append(waiters.ended_at["w1"] - began)
            assert waiters.ids("w1") == [reply.json()["todo"]["id"]]
    assert median(took) < AT_ONCE_SECONDS


@pytest.mark.parametrize("wait_seconds", [0.4, 1.5])
async def test_it_returns_empty_when_its_time_is_up(house: House, agent: Agent, wait_seconds: float) -> None:
    """An empty list, not before the end and not long after it."""
    async with many(house, agent) as http:
        began = trio.current_time()
        reply = await http.post("/v1/claims", json={"wait_seconds": wait_seconds})
        took = trio.current_time() - began
    assert (reply.status_code, reply.json()) == (200, {"todos": []})
    assert wait_seconds <= took < wait_seconds + 1


async def test_it_does_not_wait_when_there_is_work(house: House, agent: Agent) -> None:
    """Waiting is for the first todo only: fewer than `max` are a full answer."""
    todo = agent.push()
    async with many(house, agent) as http:
        with trio.fail_after(5):
            reply = await http.post("/v1/claims", json={"wait_seconds": 60, "max": 10})
    assert [each["id"] for each in reply.json()["todos"]] == [todo["id"]]


async def test_of_many_waiters_one_gets_the_one_todo(house: House, agent: Agent) -> None:
    """Exactly one has it, at once, and it is the one who waited longest; the others wait on."""
    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit("w0", wait_seconds=2)
        await waiters.sit(*(f"w{n}" for n in range(1, 25)), wait_seconds=2)
        began = trio.current_time()
        await http.post("/v1/todos", json={"queue": "work"})
    assert {name for name, todos in waiters.todos.items() if todos} == {"w0"}
    assert waiters.ended_at["w0"] - began < AT_ONCE_SECONDS
    assert min(ended for name, ended in waiters.ended_at.items() if name != "w0") - began > 1


async def test_of_many_waiters_each_gets_one_of_many_todos(house: House, agent: Agent) -> None:
    """R25: as many are woken as there are todos. One look a second alone would take half a minute."""
    names = [f"w{n}" for n in range(30)]
    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit(*names, wait_seconds=25)
        began = trio.current_time()
        await http.post("/v1/todos/batch", json={"todos": [{"queue": "work"}] * 30})
    got = [id_ for name in names for id_ in waiters.ids(name)]
    assert len(got) == len(set(got)) == 30
    assert max(waiters.ended_at.values()) - began < 3


async def test_idle_waiters_ask_once_a_second_together(house: House, agent: Agent) -> None:
    """A hundred waiters of one scope cause at most one query a second in total; a second scope has its own."""
    seconds = 4.0

    async def scans() -> int:
        # Each claim of one queue probes this index once, and nothing else in a house without sweeps reads it. A session
        # reports what it has counted at its next transaction, a second later at the earliest.
        ((count,),) = await trio.to_thread.run_sync(
            execute, house, "select idx_scan from pg_stat_user_indexes where indexrelname = 'todos_pool_queue'"
        )
        return int(count)

    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit(*(f"w{n}" for n in range(100)), wait_seconds=9, queue="quiet")
        # What their first looks counted is reported when the sessions that did it end; the house takes new ones.
        others = "application_name = 'switchboard' and datname = current_database()"
        ended = f"select pg_terminate_backend(pid) from pg_stat_activity where {others}"
        await trio.to_thread.run_sync(execute, house, ended)
        await trio.sleep(2.0)
        before = await scans()
        await trio.sleep(seconds)
        asked = await scans() - before
        await http.post("/v1/todos/batch", json={"todos": [{"queue": "quiet"}] * 100})
    assert seconds - 3 <= asked <= seconds + 2
    assert all(len(todos) == 1 for todos in waiters.todos.values())


async def test_a_ring_of_another_endpoint_wakes_nobody(house: House) -> None:
    """SPEC-0003 Doorbell never crosses endpoints: the same queue name, B waits its whole time and hears nothing of A's."""
    alice, bob = house.vend(), house.vend()
    async with many(house, alice) as of_alice, many(house, bob) as of_bob, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, of_bob)
        began = trio.current_time()
        await waiters.sit("bob", wait_seconds=1.5, queue="reviews")
        await waiters.sit("alice", wait_seconds=20, queue="reviews", http=of_alice)
        todo = (await of_alice.post("/v1/todos", json={"queue": "reviews"})).json()["todo"]
    assert waiters.ids("alice") == [todo["id"]]
    assert waiters.todos["bob"] == []
    assert waiters.ended_at["bob"] - began >= 1.5


async def test_a_ring_wakes_only_who_may_claim_the_todo(house: House, agent: Agent) -> None:
    """R25: by queue, then by assignee; those who may not claim it are older, and are not in the way."""
    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit("elsewhere", wait_seconds=2, queue="b")
        await waiters.sit("nobody", wait_seconds=2, queues=["a", "c"])
        await waiters.sit("alice", wait_seconds=20, queues=["b", "a"])
        began = trio.current_time()
        todo = (await http.post("/v1/todos", json={"queue": "a", "assignee": "alice"})).json()["todo"]
    assert waiters.ids("alice") == [todo["id"]]
    assert waiters.ended_at["alice"] - began < AT_ONCE_SECONDS
    assert waiters.todos["elsewhere"] == waiters.todos["nobody"] == []


async def test_a_waiter_without_a_queue_hears_of_any_in_its_scope(house: House) -> None:
    """And of none out of it, though the endpoint owns the todo."""
    agent = house.vend(queues=["in", "also"])
    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit("w1", wait_seconds=20)
        began = trio.current_time()
        todo = (await http.post("/v1/todos", json={"queue": "also"})).json()["todo"]
    assert waiters.ids("w1") == [todo["id"]]
    assert waiters.ended_at["w1"] - began < AT_ONCE_SECONDS


@pytest.mark.parametrize("move", ["release", "retry"])
async def test_every_transition_to_pending_rings(house: House, agent: Agent, move: str) -> None:
    """R25: beside a create, a release and an explicit retry wake a waiter at once."""
    todo = dead_letter(agent) if move == "retry" else agent.push()
    claimed = [] if move == "retry" else agent.claim()
    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit("w1", wait_seconds=20)
        began = trio.current_time()
        if move == "retry":
            await http.post(f"/v1/todos/{todo['id']}/retry")
        elif move == "release":
            await http.post(f"/v1/todos/{todo['id']}/release", json={"lease_token": claimed[0]["lease_token"]})
    assert waiters.ids("w1") == [todo["id"]]
    assert waiters.ended_at["w1"] - began < AT_ONCE_SECONDS


async def test_the_sweeps_ring_too(open_house: Opener) -> None:
    """R25: what the reaper and the retry scheduler put back wakes a waiter, of its own endpoint only."""
    house = open_house(settings={"queue": {"reap_interval_seconds": 0.1, "retry_interval_seconds": 0.1}})
    for make_due in (let_lapse, let_window_pass):
        agent, other = house.vend(), house.vend()
        todo = agent.push()
        (claimed,) = agent.claim()
        if make_due is let_window_pass:
            agent.verb("fail", claimed)
        async with many(house, agent) as http, many(house, other) as others, trio.open_nursery() as nursery:
            waiters = Waiters(nursery, http)
            await waiters.sit("other", wait_seconds=1.5, http=others)
            await waiters.sit("w1", wait_seconds=20)
            began = trio.current_time()
            make_due(house, todo)
        assert waiters.ids("w1") == [todo["id"]]
        assert waiters.ended_at["w1"] - began < 1.5
        assert waiters.todos["other"] == []


async def test_a_ring_of_another_process_is_made_up_for(open_house: Opener) -> None:
    """A create through one house is claimed by a waiter of another on the same database: a second later at most, or so."""
    house = open_house(settings=CALM)
    other = open_house(settings=CALM, database=house.database)
    agent = house.vend()
    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit("w1", wait_seconds=20)
        began = trio.current_time()
        async with many(other, agent) as there:
            todo = (await there.post("/v1/todos", json={"queue": "work"})).json()["todo"]
    assert waiters.ids("w1") == [todo["id"]]
    assert waiters.ended_at["w1"] - began < 2.5


async def test_a_woken_waiter_that_goes_away_passes_the_wake_on(house: House, agent: Agent) -> None:
    """R25, R15: the oldest waiter is woken, and hangs up while it claims; the next one has the todo, its first attempt."""
    execute(
        house,
        """
        create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.7); return new; end $$;
        create trigger dawdle before update on todos for each row
            when (new.state = 'claimed' and old.state = 'pending') execute function dawdle()
        """,
    )
    try:
        async with many(house, agent) as http, many(house, agent) as fickle, trio.open_nursery() as nursery:
            waiters = Waiters(nursery, http)
            left = trio.Event()

            async def leave_when_woken() -> None:
                with pytest.raises(httpx.ReadTimeout):
                    await fickle.post("/v1/claims", json={"owner": "fickle", "wait_seconds": 20}, timeout=1.0)
                left.set()

            nursery.start_soon(leave_when_woken)
            await trio.sleep(SEATED_SECONDS)
            await waiters.sit("steady", wait_seconds=20)
            todo = (await http.post("/v1/todos", json={"queue": "work"})).json()["todo"]
            await left.wait()
    finally:
        execute(house, "drop trigger dawdle on todos; drop function dawdle()")
    assert waiters.ids("steady") == [todo["id"]]
    assert waiters.todos["steady"][0]["attempt"] == 1
    assert [attempt["owner"] for attempt in agent.get(todo)["attempts"]] == ["steady"]


async def test_a_waiter_that_hangs_up_is_forgotten(house: House, agent: Agent) -> None:
    """The one behind it is the oldest then, and is woken at once."""
    async with many(house, agent) as http, many(house, agent) as fickle, trio.open_nursery() as nursery:
        with pytest.raises(httpx.ReadTimeout):
            await fickle.post("/v1/claims", json={"owner": "fickle", "wait_seconds": 20}, timeout=SEATED_SECONDS)
        waiters = Waiters(nursery, http)
        await waiters.sit("steady", wait_seconds=20)
        began = trio.current_time()
        todo = (await http.post("/v1/todos", json={"queue": "work"})).json()["todo"]
    assert waiters.ids("steady") == [todo["id"]]
    assert waiters.ended_at["steady"] - began < AT_ONCE_SECONDS


async def test_a_wait_holds_no_connection_to_the_database(house: House, agent: Agent) -> None:
    """A hundred waiters, and everything else is answered as if they were not there."""
    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit(*(f"w{n}" for n in range(100)), wait_seconds=2.5, queue="quiet")
        for _ in range(20):
            with trio.fail_after(2):
                assert (await http.post("/v1/todos", json={"queue": "other"})).status_code == 201
                assert len((await http.post("/v1/claims", json={"queue": "other"})).json()["todos"]) == 1
    assert len(waiters.todos) == 100


async def test_waits_of_unknown_size_are_in_nobodys_way(house: House, agent: Agent) -> None:
    """A client that sends its claim in chunks waits like any other: it holds no room that large bodies need."""

    async def chunks(text: bytes) -> AsyncIterator[bytes]:
        yield text
        await trio.lowlevel.checkpoint()

    async with many(house, agent) as http, trio.open_nursery() as nursery:
        for _ in range(12):
            body = chunks(b'{"queue":"quiet","wait_seconds":3}')
            nursery.start_soon(partial(http.post, "/v1/claims", content=body, headers={"Content-Type": "application/json"}))
        await trio.sleep(SEATED_SECONDS)
        with trio.fail_after(2.5):
            large = await http.post("/v1/todos", json={"queue": "work", "payload": "x" * 500_000})
            chunked = await http.post(
                "/v1/todos", content=chunks(b'{"queue":"work"}'), headers={"Content-Type": "application/json"}
            )
        assert (large.status_code, chunked.status_code) == (201, 201)


@pytest.mark.parametrize("verb", ["rotate", "revoke"])
async def test_a_wait_ends_with_its_credential(house: House, agent: Agent, verb: str) -> None:
    """R17: whoever waits with a credential that was rotated or revoked hears so at once; others wait on."""
    other = house.vend()
    async with many(house, agent) as http, many(house, other) as others, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, others)
        await waiters.sit("other", wait_seconds=1.5)
        refused: list[httpx.Response] = []
        ended_at: list[float] = []

        async def wait() -> None:
            refused.append(await http.post("/v1/claims", json={"wait_seconds": 20}))
            ended_at.append(trio.current_time())

        async with trio.open_nursery() as waiting:
            for _ in range(5):
                waiting.start_soon(wait)
            await trio.sleep(SEATED_SECONDS)
            began = trio.current_time()
            with house.operator() as operator:
                assert operator.post(f"/operator/v1/endpoints/{agent.name}/{verb}").status_code == 200
    assert max(ended_at) - began < AT_ONCE_SECONDS
    for reply in refused:
        problem(reply, 401, "unauthorized")
    assert waiters.todos["other"] == []


async def test_closing_the_house_returns_waiters_at_once(open_house: Opener) -> None:
    """SIGTERM: every waiter has its empty answer, long before its time; the house ends in order."""
    house = open_house(settings=CALM)
    agent = house.vend()
    async with many(house, agent) as http, trio.open_nursery() as nursery:
        waiters = Waiters(nursery, http)
        await waiters.sit(*(f"w{n}" for n in range(50)), wait_seconds=60)
        await trio.sleep(1.0)  # one that is not accepted yet when the signal comes is refused instead
        began = trio.current_time()
        house.signal()
        assert await trio.to_thread.run_sync(house.process.wait, 20) == 0
        assert trio.current_time() - began < 5
    assert len(waiters.todos) == 50
    assert all(todos == [] for todos in waiters.todos.values())


async def test_a_wait_out_of_scope_is_refused_at_once(house: House) -> None:
    """403 without waiting."""
    agent = house.vend(queues=["in"])
    async with many(house, agent) as http:
        with trio.fail_after(5):
            problem(await http.post("/v1/claims", json={"queue": "out", "wait_seconds": 60}), 403, "forbidden")
