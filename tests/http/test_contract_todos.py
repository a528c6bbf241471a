"""Creating, reading, listing and retrying over HTTP: every line of the agents' table that holds no claim."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
import trio

from tests.houses import Agent, House
from tests.http.asking import (
    NEVER_MINTED,
    TODO_FIELDS,
    dead_letter,
    error,
    execute,
    is_id,
    let_window_pass,
    many,
    post,
    problem,
    row,
)

CREATE_LOOP_SECONDS = 3.0


@pytest.fixture(scope="module")
def house(each_lane: House) -> House:
    """A house without sweeps, asked through either lane."""
    return each_lane


def test_a_create_answers_the_whole_todo(house: House) -> None:
    """201, `created`, every field of the contract and no other; ids of version 7, times in UTC with `Z`."""
    agent = house.vend()
    body = {
        "queue": "reviews",
        "title": "Look at this",
        "kind": "review",
        "payload": {"commit": "5703a6d"},
        "idempotency_key": "k1",
        "assignee": "alice",
        "max_attempts": 3,
    }
    reply = agent.http.post("/v1/todos", json=body)
    assert reply.status_code == 201
    assert reply.headers["content-type"] == "application/json"
    assert reply.json().keys() == {"todo", "created"}
    assert reply.json()["created"] is True
    todo = reply.json()["todo"]
    assert todo.keys() == TODO_FIELDS
    assert {name: todo[name] for name in body} == body
    assert todo["endpoint_id"] == agent.id
    assert is_id(todo["id"])
    assert (todo["source"], todo["state"], todo["status"], todo["attempt"]) == ("api", "pending", "pending", 0)
    assert todo["payload_bytes"] == len('{"commit":"5703a6d"}')
    for name in ("result", "result_bytes", "error", "owner", "event_id", "lease_token", "lease_expires_at"):
        assert todo[name] is None, name
    for name in ("next_retry_at", "claimed_at", "completed_at"):
        assert todo[name] is None, name
    for name in ("created_at", "updated_at"):
        assert todo[name].endswith("Z")
        assert datetime.fromisoformat(todo[name]).utcoffset() == timedelta(0)


def test_a_create_with_a_queue_alone_takes_the_servers_defaults(house: House) -> None:
    """Everything but `queue` is optional; an absent payload is null and has no bytes."""
    agent = house.vend()
    todo = agent.push("work")
    assert todo["max_attempts"] == agent.http.get("/v1/whoami").json()["defaults"]["max_attempts"]
    assert (todo["title"], todo["kind"], todo["payload"], todo["payload_bytes"]) == (None, None, None, 0)
    assert (todo["idempotency_key"], todo["assignee"]) == (None, None)


def test_optional_fields_may_be_null(house: House) -> None:
    """Null where a field is optional is the same as leaving it out."""
    agent = house.vend()
    names = ("title", "kind", "payload", "idempotency_key", "assignee", "max_attempts")
    todo = agent.push("work", **dict.fromkeys(names))
    assert todo["max_attempts"] == 5
    assert agent.get(todo)["payload"] is None


def test_a_live_twin_answers_200(house: House) -> None:
    """SPEC-0003 Duplicate delivery collapses to one todo: the same key gives the same todo, unchanged, and says so."""
    agent = house.vend()
    first = agent.push(idempotency_key="k", title="first", payload=[1])
    reply = agent.http.post("/v1/todos", json={"queue": "work", "idempotency_key": "k", "title": "second", "payload": [2]})
    assert reply.status_code == 200
    assert reply.json() == {"todo": first, "created": False}


@pytest.mark.parametrize("state", ["claimed", "parked"])
def test_a_twin_is_live_while_it_is_claimed_or_parked(house: House, state: str) -> None:
    """R2: a claimed todo and one in its retry window hold their key; nobody but its claimer sees the lease token."""
    agent = house.vend()
    todo = agent.push(idempotency_key="k")
    (claimed,) = agent.claim()
    if state == "parked":
        agent.verb("fail", claimed)
    reply = agent.http.post("/v1/todos", json={"queue": "work", "idempotency_key": "k"})
    assert reply.status_code == 200
    assert reply.json()["todo"]["id"] == todo["id"]
    assert reply.json()["todo"]["status"] == {"claimed": "claimed", "parked": "retrying"}[state]
    assert reply.json()["todo"]["lease_token"] is None


@pytest.mark.parametrize("end", ["done", "dead"])
def test_an_ended_twin_does_not_hold_its_key(house: House, end: str) -> None:
    """SPEC-0003 A terminal todo does not block a new one; R3: an equal create later is new work."""
    agent = house.vend()
    todo = agent.push(idempotency_key="k", max_attempts=1)
    (claimed,) = agent.claim()
    assert agent.verb("complete" if end == "done" else "fail", claimed).json()["todo"]["status"] == end
    reply = agent.http.post("/v1/todos", json={"queue": "work", "idempotency_key": "k"})
    assert reply.status_code == 201
    assert reply.json()["todo"]["id"] != todo["id"]


def test_one_key_on_two_queues_of_one_endpoint_is_one_todo(house: House) -> None:
    """R1: the queue is no part of the key; the todo that comes back shows its real queue."""
    agent = house.vend()
    first = agent.push("left", idempotency_key="k")
    reply = agent.http.post("/v1/todos", json={"queue": "right", "idempotency_key": "k"})
    assert reply.status_code == 200
    assert (reply.json()["todo"]["id"], reply.json()["todo"]["queue"]) == (first["id"], "left")


def test_one_key_at_two_endpoints_is_two_todos(house: House) -> None:
    """R1; SPEC-0003 Per-Endpoint Idempotency: each endpoint has a namespace of its own."""
    one, other = house.vend(), house.vend()
    assert one.push(idempotency_key="k")["id"] != other.push(idempotency_key="k")["id"]


def test_a_key_differs_by_case_and_space(house: House) -> None:
    """Keys are compared as they are: nothing is trimmed or folded."""
    agent = house.vend()
    assert len({agent.push(idempotency_key=key)["id"] for key in ("k", "K", " k", "k ")}) == 4


async def test_a_key_in_use_always_answers_with_a_todo(house: House) -> None:
    """C47: 20 creators of one key and an agent that ends it all the time: no 5xx, no null, `created` once per life."""
    agent = house.vend()
    made: list[str] = []
    seen: set[str] = set()
    statuses: set[int] = set()
    until = trio.current_time() + CREATE_LOOP_SECONDS

    async def keep_creating(http: httpx.AsyncClient) -> None:
        while trio.current_time() < until:
            reply = await http.post("/v1/todos", json={"queue": "work", "idempotency_key": "contended"})
            statuses.add(reply.status_code)
            body = reply.json()
            seen.add(body["todo"]["id"])
            if body["created"]:
                made.append(body["todo"]["id"])

    async def keep_ending(http: httpx.AsyncClient) -> None:
        while trio.current_time() < until:
            reply = await http.post("/v1/claims", json={"wait_seconds": 1})
            statuses.add(reply.status_code)
            for todo in reply.json()["todos"]:
                ended = await http.post(f"/v1/todos/{todo['id']}/complete", json={"lease_token": todo["lease_token"]})
                statuses.add(ended.status_code)

    async with many(house, agent) as http, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(keep_creating, http)
        nursery.start_soon(keep_ending, http)
    assert statuses == {200, 201}
    assert len(made) > 1, "nobody ended it"
    stored = {str(id_) for (id_,) in execute(house, "select id from todos where endpoint_id = %s", agent.id)}
    assert sorted(made) == sorted(stored)
    assert seen == stored
    ((live,),) = execute(house, "select count(*) from todos where endpoint_id = %s and state <> 'done'", agent.id)
    assert live <= 1


def test_a_batch_answers_each_todo_in_order(house: House) -> None:
    """`/v1/todos/batch`: results stand where their items stood, twins in the batch and before it collapse."""
    agent = house.vend()
    before = agent.push(idempotency_key="before")
    items: list[dict[str, Any]] = [
        {"queue": "a", "title": "0"},
        {"queue": "b", "idempotency_key": "twice", "title": "1"},
        {"queue": "c", "idempotency_key": "before", "title": "2"},
        {"queue": "d", "idempotency_key": "twice", "title": "3"},
        {"queue": "a", "title": "4", "payload": {"n": 4}},
    ]
    reply = agent.http.post("/v1/todos/batch", json={"todos": items})
    assert reply.status_code == 200
    assert reply.json().keys() == {"results"}
    results = reply.json()["results"]
    assert [result.keys() for result in results] == [{"todo", "created"}] * 5
    assert [result["created"] for result in results] == [True, True, False, False, True]
    assert [result["todo"]["title"] for result in results] == ["0", "1", None, "1", "4"]
    assert results[2]["todo"]["id"] == before["id"]
    assert results[3]["todo"]["id"] == results[1]["todo"]["id"]
    assert results[4]["todo"]["payload"] == {"n": 4}


def test_ids_of_a_batch_sort_in_request_order(house: House) -> None:
    """R13: a thousand todos of one batch are claimed, and listed, in the order in which they stood in it."""
    agent = house.vend()
    reply = agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "q", "title": str(n)} for n in range(1_000)]})
    ids = [result["todo"]["id"] for result in reply.json()["results"]]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1_000
    claimed = agent.claim(max=1_000)
    assert [todo["title"] for todo in claimed] == [str(n) for n in range(1_000)]


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([{"queue": "a"}, {"queue": "a", "lease": 1}], "todos[1].lease"),
        ([{"queue": "a"}] * 3 + [{"queue": ""}], "todos[3].queue"),
        ([{"queue": "a"}, {"title": "no queue"}], "todos[1].queue"),
        ([{"queue": "a"}, {"queue": "a", "max_attempts": 101}], "todos[1].max_attempts"),
        ([{"queue": "a"}, {"queue": "a", "max_attempts": "3"}], "todos[1].max_attempts"),
        ([{"queue": "a"}, {"queue": "a", "idempotency_key": "é" * 257}], "todos[1].idempotency_key"),
        ([{"queue": "a"}, {"queue": "a", "payload": {"deep": ["x\0"]}}], "todos[1].payload"),
        ([{"queue": "a"}, {"queue": "a", "title": "x\0"}], "todos[1].title"),
        ([{"queue": "a"}, "todo"], "todos[1]"),
        ([], "todos"),
        ([{"queue": "a"}] * 1_001, "todos"),
        ("todos", "todos"),
        (None, "todos"),
    ],
)
def test_a_malformed_batch_is_refused_whole(house: House, items: Any, field: str) -> None:
    """A batch with one malformed item does nothing at all, and the answer names the place (R27)."""
    agent = house.vend()
    problem(agent.http.post("/v1/todos/batch", json={"todos": items}), 422, "invalid", field)
    assert agent.http.get("/v1/todos").json()["todos"] == []


def test_one_todo_is_read_whole_with_its_history(house: House) -> None:
    """`GET /v1/todos/{id}`: payload, result and every attempt: who, when, and how it ended."""
    agent = house.vend()
    todo = agent.push(payload={"a": 1}, max_attempts=2)
    (first,) = agent.claim(owner="w1")
    agent.verb("fail", first, error="it broke")
    let_window_pass(house, todo)
    (second,) = agent.claim(owner="w2")
    under_way = agent.get(todo)
    assert under_way.keys() == TODO_FIELDS | {"attempts"}
    assert under_way["lease_token"] is None
    assert [attempt["outcome"] for attempt in under_way["attempts"]] == ["failed", None]
    agent.verb("complete", second, result="fine")
    found = agent.get(todo)
    assert (found["payload"], found["result"], found["status"]) == ({"a": 1}, "fine", "done")
    first_attempt, second_attempt = found["attempts"]
    assert first_attempt.keys() == {"attempt", "owner", "claimed_at", "ended_at", "outcome", "error"}
    assert (first_attempt["attempt"], first_attempt["owner"], first_attempt["outcome"]) == (1, "w1", "failed")
    assert first_attempt["error"] == "it broke"
    assert (second_attempt["attempt"], second_attempt["owner"], second_attempt["outcome"]) == (2, "w2", "completed")
    assert second_attempt["error"] is None
    assert first_attempt["claimed_at"] <= first_attempt["ended_at"] <= second_attempt["claimed_at"]


def test_a_fresh_todo_has_an_empty_history(house: House) -> None:
    """`attempts` is there from the start, and empty."""
    agent = house.vend()
    assert agent.get(agent.push())["attempts"] == []


def test_a_listing_shows_compact_rows(house: House) -> None:
    """No payload and no result in a listing: their sizes stand for them, and nobody's lease token."""
    agent = house.vend()
    todo = agent.push(payload={"a": "é"})
    (claimed,) = agent.claim()
    ((listed,),) = [agent.http.get("/v1/todos").json()["todos"]]
    assert listed.keys() == TODO_FIELDS - {"payload", "result"}
    assert (listed["id"], listed["status"], listed["lease_token"]) == (todo["id"], "claimed", None)
    assert listed["lease_expires_at"] is not None
    assert (listed["payload_bytes"], listed["result_bytes"]) == (len('{"a":"é"}'.encode()), None)
    post(agent.http, f"/v1/todos/{todo['id']}/complete", json.dumps({"lease_token": claimed["lease_token"], "result": [1]}))
    ((listed,),) = [agent.http.get("/v1/todos").json()["todos"]]
    assert (listed["result_bytes"], listed["status"]) == (3, "done")


def test_paging_shows_everything_exactly_once(house: House) -> None:
    """Cursors walk through every todo once, newest first, also while others are created; the last page has none."""
    agent = house.vend()
    reply = agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "q"} for _ in range(123)]})
    expected = [result["todo"]["id"] for result in reply.json()["results"]][::-1]
    for limit in (1, 50, 123, 200):
        seen: list[str] = []
        cursor = None
        while True:
            query = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
            page = agent.http.get("/v1/todos", params=query).json()
            assert page.keys() == {"todos", "next_cursor"}
            assert len(page["todos"]) <= limit
            seen += [todo["id"] for todo in page["todos"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
            if limit == 50:
                agent.push("later")  # newer than every cursor, so it changes no page that is still to come
        assert seen[-123:] == expected
        assert len(seen) == len(set(seen))
    assert len(agent.http.get("/v1/todos").json()["todos"]) == 50


def test_a_listing_is_filtered_by_queue_state_and_status(house: House) -> None:
    """Each filter, and any two together, over one todo of every status; a contradiction is an empty list."""
    agent = house.vend()
    ids = {}
    for side in ("left", "right"):
        ids["done", side] = agent.push(side)["id"]
        agent.verb("complete", agent.claim(queue=side)[0])
        ids["dead", side] = dead_letter(agent, queue=side)["id"]
        ids["retrying", side] = agent.push(side)["id"]
        agent.verb("fail", agent.claim(queue=side)[0])
        ids["claimed", side] = agent.push(side)["id"]
        agent.claim(queue=side)
        ids["pending", side] = agent.push(side)["id"]
    state_of = {"pending": "pending", "claimed": "claimed", "retrying": "failed", "dead": "failed", "done": "done"}

    def listed(**query: str) -> list[str]:
        return [todo["id"] for todo in agent.http.get("/v1/todos", params=query).json()["todos"]]

    def expected(queue: str | None, state: str | None, status: str | None) -> list[str]:
        found = [
            id_
            for (of_status, of_queue), id_ in ids.items()
            if queue in (None, of_queue) and status in (None, of_status) and state in (None, state_of[of_status])
        ]
        return sorted(found, reverse=True)

    for queue in (None, "left", "right", "nowhere"):
        for state in (None, "pending", "claimed", "done", "failed"):
            for status in (None, *state_of):
                query = {"queue": queue, "state": state, "status": status}
                given = {name: value for name, value in query.items() if value is not None}
                assert listed(**given) == expected(queue, state, status), given
    one = agent.http.get("/v1/todos", params={"state": "failed", "limit": "1"}).json()
    rest = agent.http.get("/v1/todos", params={"state": "failed", "cursor": one["next_cursor"]}).json()
    assert [todo["id"] for todo in one["todos"] + rest["todos"]] == expected(None, "failed", None)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=-1", "limit"),
        ("limit=many", "limit"),
        ("limit=NaN", "limit"),
        ("limit=", "limit"),
        ("state=parked", "state"),
        ("state=Pending", "state"),
        ("status=failed", "status"),
        ("queue=", "queue"),
        (f"queue={'q' * 201}", "queue"),
        ("queue=%00", "queue"),
        ("cursor=abc", "cursor"),
        ("cursor=", "cursor"),
        ("limit=1&limit=2", "limit"),
        ("page=2", "page"),
        ("endpoint=mine", "endpoint"),
    ],
)
def test_a_wrong_query_parameter_is_named(house: House, query: str, field: str) -> None:
    """R27: 422 with the parameter; a limit over its cap is refused, never silently changed."""
    problem(house.vend().http.get(f"/v1/todos?{query}"), 422, "invalid", field)


def test_a_query_where_none_is_taken_is_refused(house: House) -> None:
    """A misplaced parameter is a mistake that the caller hears of, also on routes that take a body."""
    agent = house.vend()
    problem(agent.http.get("/v1/whoami?limit=3"), 422, "invalid", "limit")
    problem(agent.http.post("/v1/claims?wait_seconds=3"), 422, "invalid", "wait_seconds")


def test_retry_of_a_dead_letter_starts_again(house: House) -> None:
    """R8: attempt 0, no owner, no window, no end; the error of the last failure stays for whoever looks."""
    agent = house.vend()
    dead = dead_letter(agent)
    reply = agent.verb("retry", dead)
    assert reply.status_code == 200
    assert reply.json().keys() == {"todo"}
    todo = reply.json()["todo"]
    assert todo.keys() == TODO_FIELDS
    assert (todo["status"], todo["attempt"], todo["error"]) == ("pending", 0, "on purpose")
    for name in ("owner", "claimed_at", "completed_at", "next_retry_at", "lease_expires_at"):
        assert todo[name] is None, name
    (claimed,) = agent.claim()
    assert (claimed["id"], claimed["attempt"]) == (dead["id"], 1)


def test_retry_of_a_parked_todo_opens_it_at_once(house: House) -> None:
    """R8: an explicit retry does not wait for the window."""
    agent = house.vend()
    agent.push()
    parked = agent.verb("fail", agent.claim()[0]).json()["todo"]
    assert parked["next_retry_at"] is not None
    todo = agent.verb("retry", parked).json()["todo"]
    assert (todo["status"], todo["attempt"], todo["next_retry_at"]) == ("pending", 0, None)


@pytest.mark.parametrize("state", ["pending", "claimed", "done"])
def test_retry_of_anything_else_is_a_conflict(house: House, state: str) -> None:
    """R8: only a failed todo can be retried; the answer carries the state, and nothing changes."""
    agent = house.vend()
    todo = agent.push()
    if state != "pending":
        (claimed,) = agent.claim()
        if state == "done":
            agent.verb("complete", claimed)
    before = row(house, todo)
    assert problem(agent.verb("retry", todo), 409, "conflict")["state"] == state
    assert row(house, todo) == before


def test_retry_gives_way_to_a_live_twin(house: House) -> None:
    """R8: where another live todo holds the key, 409 names it and nothing is changed."""
    agent = house.vend()
    dead = dead_letter(agent, idempotency_key="k")
    twin = agent.push(idempotency_key="k")
    before = row(house, dead)
    refused = problem(agent.verb("retry", dead), 409, "conflict")
    assert refused["todo_id"] == twin["id"]
    assert row(house, dead) == before
    agent.verb("complete", agent.claim()[0])
    assert agent.verb("retry", dead).json()["todo"]["status"] == "pending"


def test_retry_takes_no_fields(house: House) -> None:
    """An empty body, `{}` or none at all; anything in it is unknown."""
    agent = house.vend()
    assert post(agent.http, f"/v1/todos/{dead_letter(agent)['id']}/retry", "{}").status_code == 200
    problem(agent.verb("retry", dead_letter(agent), owner="me"), 422, "invalid", "owner")


def test_queues_counts_every_status(house: House) -> None:
    """`GET /v1/queues`: one line for each queue by name, and the age of its oldest pending todo."""
    agent = house.vend()
    agent.push("a")
    agent.verb("complete", agent.claim(queue="a")[0])
    dead_letter(agent, queue="a")
    agent.push("a")
    agent.verb("fail", agent.claim(queue="a")[0])
    agent.push("a")
    agent.claim(queue="a")
    first = agent.push("a")
    agent.push("a")
    agent.push("b")
    agent.claim(queue="b")
    execute(house, "update todos set created_at = created_at - interval '90 seconds' where id = %s", first["id"])
    reply = agent.http.get("/v1/queues")
    assert reply.status_code == 200
    assert reply.json().keys() == {"queues"}
    queue_a, queue_b = reply.json()["queues"]
    age = queue_a.pop("oldest_pending_seconds")
    assert queue_a == {"queue": "a", "pending": 2, "claimed": 1, "retrying": 1, "dead": 1, "done": 1}
    assert 90 <= age < 150
    assert queue_b == {
        "queue": "b",
        "pending": 0,
        "claimed": 1,
        "retrying": 0,
        "dead": 0,
        "done": 0,
        "oldest_pending_seconds": None,
    }


def test_queues_is_empty_for_a_new_endpoint(house: House) -> None:
    """An endpoint that has nothing sees nothing, whatever others have."""
    house.vend().push("theirs")
    assert house.vend().http.get("/v1/queues").json() == {"queues": []}


def test_whoami_says_who_and_what_holds(house: House) -> None:
    """`GET /v1/whoami`: name, id, the queues it may use, the server's defaults."""
    agent = house.vend()
    assert agent.http.get("/v1/whoami").json() == {
        "endpoint": agent.name,
        "id": agent.id,
        "queues": None,
        "defaults": {"lease_seconds": 300, "max_attempts": 5, "payload_bytes": 1_048_576},
    }
    assert house.vend(queues=["b", "a"]).http.get("/v1/whoami").json()["queues"] == ["b", "a"]


def test_another_endpoints_todos_do_not_exist(house: House) -> None:
    """SPEC-0003 Cross-endpoint queue collision is isolated: not listed, not counted, not claimed, not found."""
    alice, bob = house.vend(), house.vend()
    todo = alice.push("reviews")
    assert bob.http.get("/v1/todos", params={"queue": "reviews"}).json() == {"todos": [], "next_cursor": None}
    assert bob.http.get("/v1/queues").json() == {"queues": []}
    assert bob.claim(queue="reviews") == []
    assert bob.claim() == []
    problem(bob.verb("claim", todo), 404, "not_found")
    problem(bob.http.get(f"/v1/todos/{todo['id']}"), 404, "not_found")
    assert [each["id"] for each in alice.claim(queue="reviews")] == [todo["id"]]


def test_a_cursor_opens_no_door_to_others(house: House) -> None:
    """A cursor is only a place: another endpoint's id, or one that nobody has, shows nothing that is not the caller's."""
    alice, bob = house.vend(), house.vend()
    mine = bob.push()
    cursor = alice.push()["id"]
    page = bob.http.get("/v1/todos", params={"cursor": cursor}).json()
    assert [todo["id"] for todo in page["todos"]] == [mine["id"]]
    assert bob.http.get("/v1/todos", params={"cursor": NEVER_MINTED}).json()["todos"] == []


class TestALimitedEndpoint:
    """An endpoint that may use some queues only: 403 to create and claim elsewhere, invisible in lists, 404 by id."""

    @pytest.fixture
    def agent(self, house: House) -> Agent:
        """One that may use `in` and `also`, and owns a todo elsewhere all the same, as if its scope had been narrowed."""
        return house.vend(queues=["in", "also"])

    @pytest.fixture
    def outside(self, house: House, agent: Agent) -> dict[str, Any]:
        """Its todo in a queue that it may not use."""
        todo = agent.push("in", title="moved away")
        execute(house, "update todos set queue = 'out' where id = %s", todo["id"])
        return todo

    def test_create_elsewhere_is_forbidden(self, agent: Agent) -> None:
        """403, and nothing is stored."""
        problem(agent.http.post("/v1/todos", json={"queue": "out"}), 403, "forbidden")
        assert agent.http.post("/v1/todos", json={"queue": "also"}).status_code == 201

    def test_a_batch_is_forbidden_item_by_item(self, agent: Agent) -> None:
        """An outcome of scope is an item's own; the others of the batch are made."""
        items = [{"queue": "in"}, {"queue": "out"}, {"queue": "also"}]
        results = agent.http.post("/v1/todos/batch", json={"todos": items}).json()["results"]
        error(results[1], "forbidden")
        assert [results[place]["created"] for place in (0, 2)] == [True, True]

    @pytest.mark.parametrize("body", [{"queue": "out"}, {"queues": ["in", "out"]}])
    def test_claim_elsewhere_is_forbidden(self, agent: Agent, body: dict[str, Any]) -> None:
        """403 for a queue, and for one among several."""
        agent.push("in")
        problem(agent.http.post("/v1/claims", json=body), 403, "forbidden")

    def test_next_elsewhere_is_forbidden_and_completes_nothing(self, agent: Agent) -> None:
        """`next` is checked before anything happens."""
        agent.push("in")
        (claimed,) = agent.claim()
        problem(agent.verb("complete", claimed, next={"queue": "out"}), 403, "forbidden")
        assert agent.get(claimed)["status"] == "claimed"

    @pytest.mark.usefixtures("outside")
    def test_claim_of_any_queue_means_any_in_scope(self, agent: Agent) -> None:
        """Neither `queue` nor `queues`: what lies outside is not handed out."""
        inside = agent.push("also")
        assert [todo["id"] for todo in agent.claim(max=10)] == [inside["id"]]

    def test_lists_and_counts_do_not_show_it(self, agent: Agent, outside: dict[str, Any]) -> None:
        """Invisible, by name too."""
        agent.push("in")
        assert [todo["queue"] for todo in agent.http.get("/v1/todos").json()["todos"]] == ["in"]
        assert agent.http.get("/v1/todos", params={"queue": "out"}).json()["todos"] == []
        for status in ("pending", "claimed", "retrying", "dead", "done"):
            listed = agent.http.get("/v1/todos", params={"status": status}).json()["todos"]
            assert outside["id"] not in [todo["id"] for todo in listed]
        assert [queue["queue"] for queue in agent.http.get("/v1/queues").json()["queues"]] == ["in"]
