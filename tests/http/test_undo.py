"""Claims whose answer never reached the socket are taken back at once, the attempt not counted (R15, C36); R32's repeats."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.houses import Agent, House, wait_until
from tests.http.asking import address, execute, locked_todos, post, problem, request_bytes, row

BACK_SECONDS_MAX = 5


@pytest.fixture(scope="module")
def house(each_lane: House) -> House:
    """A house without sweeps, asked through either lane."""
    return each_lane


@pytest.fixture
def agent(house: House) -> Agent:
    """An endpoint of the test's own."""
    return house.vend()


@contextmanager
def asking(house: House, agent: Agent, path: str, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A request that was sent whole, on a connection that is closed when the block ends, answered or not."""
    with socket.create_connection(address(house), timeout=20) as sock:
        sock.sendall(request_bytes(agent, path, body))
        yield sock


def cut(house: House, agent: Agent, path: str, body: dict[str, Any], *, waiting: int = 1) -> None:
    """Asks, and hangs up once that many statements of the house wait for the lock that the test holds."""
    with asking(house, agent, path, body):
        wait_until(lambda: statements_waiting(house) >= waiting, what="a statement that waits")


def statements_waiting(house: House) -> int:
    """How many statements of callers wait for a lock. The look of the doorbell, which waits as well, is none of them."""
    ((count,),) = execute(
        house,
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and application_name = 'switchboard' and wait_event_type = 'Lock'"
        " and query not like '%pending_seconds%'",
    )
    return int(count)


def assert_untouched(house: House, agent: Agent, todo: dict[str, Any], *, attempt: int = 0) -> None:
    """Asserts that the todo is as if the claim had never been."""
    stored = row(house, todo)
    assert (stored["state"], stored["attempt"], stored["owner"], stored["lease_token"]) == ("pending", attempt, None, None)
    assert len(agent.get(todo)["attempts"]) == attempt


@pytest.mark.parametrize("by_id", [False, True], ids=["next", "by id"])
def test_a_client_that_is_cut_while_its_claim_waits(house: House, agent: Agent, by_id: bool) -> None:
    """C36: the claim blocks on a lock, the client goes, the lock goes: the next claim has it at once, attempt 1."""
    todo = agent.push()
    path = f"/v1/todos/{todo['id']}/claim" if by_id else "/v1/claims"
    with locked_todos(house):
        cut(house, agent, path, {"owner": "gone"})
    (claimed,) = agent.claim(owner="next", wait_seconds=BACK_SECONDS_MAX)
    assert (claimed["id"], claimed["attempt"], claimed["owner"]) == (todo["id"], 1, "next")
    assert [attempt["owner"] for attempt in agent.get(todo)["attempts"]] == ["next"]
    assert agent.verb("complete", claimed).status_code == 200


def test_many_clients_that_are_cut_at_once(house: House, agent: Agent) -> None:
    """C36: a hundred todos claimed by ten who all go away: every one of them is back, and none has lost an attempt."""
    for _ in range(100):
        agent.push(max_attempts=1)
    with locked_todos(house):
        threads = [threading.Thread(target=cut, args=(house, agent, "/v1/claims", {"max": 10})) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    claimed: list[dict[str, Any]] = []
    while len(claimed) < 100:
        more = agent.claim(owner="next", max=200, wait_seconds=BACK_SECONDS_MAX)
        assert more, "some did not come back"
        claimed += more
    assert {todo["attempt"] for todo in claimed} == {1}
    assert len({todo["id"] for todo in claimed}) == 100


def test_a_client_that_is_cut_disturbs_nobody_else(house: House, agent: Agent) -> None:
    """R15: of two claims that wait together only the one that nobody hears of is undone."""
    for _ in range(2):
        agent.push()
    kept: list[dict[str, Any]] = []

    def keep() -> None:
        with house.client(agent.credential) as http:
            kept.extend(http.post("/v1/claims", json={"owner": "kept"}).json()["todos"])

    stays = threading.Thread(target=keep)
    with locked_todos(house):
        stays.start()
        wait_until(lambda: statements_waiting(house) == 1, what="a statement that waits")
        cut(house, agent, "/v1/claims", {"owner": "gone"}, waiting=2)
    stays.join()
    (other,) = agent.claim(owner="next", wait_seconds=BACK_SECONDS_MAX)
    assert {kept[0]["id"], other["id"]} == {todo["id"] for todo in agent.http.get("/v1/todos").json()["todos"]}
    assert (kept[0]["attempt"], other["attempt"]) == (1, 1)
    assert agent.verb("heartbeat", kept[0]).status_code == 200


def test_a_later_attempt_that_is_undone_keeps_the_earlier_ones(house: House, agent: Agent) -> None:
    """R15: the undone claim leaves no line in the history, and the numbers go on from before it."""
    todo = agent.push()
    agent.verb("release", agent.claim(owner="first")[0])
    with locked_todos(house):
        cut(house, agent, "/v1/claims", {"owner": "gone"})
    (claimed,) = agent.claim(owner="second", wait_seconds=BACK_SECONDS_MAX)
    assert claimed["attempt"] == 2
    assert [(attempt["attempt"], attempt["owner"]) for attempt in agent.get(todo)["attempts"]] == [(1, "first"), (2, "second")]


def test_an_answer_that_was_computed_and_never_arrived(house: House, agent: Agent) -> None:
    """C36: the claim has committed and its answer is being written when the client resets: undone all the same."""
    payload = json.dumps("x" * (1 << 20 >> 1))
    todos = ",".join([f'{{"queue":"big","max_attempts":1,"payload":{payload}}}'] * 24)
    assert post(agent.http, "/v1/todos/batch", f'{{"todos":[{todos}]}}').status_code == 200
    with asking(house, agent, "/v1/claims", {"max": 100}) as sock:
        assert sock.recv(64).startswith(b"HTTP/1.1 200 ")
        claimed = "select count(*) from todos where endpoint_id = %s and state = 'claimed'"
        assert execute(house, claimed, agent.id) == [(24,)]
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    untouched = "select count(*) from todos where endpoint_id = %s and state = 'pending' and attempt = 0"
    wait_until(lambda: execute(house, untouched, agent.id) == [(24,)], seconds=BACK_SECONDS_MAX, what="all of them back")
    assert len(agent.claim(queue="big", max=24)) == 24


def test_an_answer_that_arrived_is_never_undone(house: House, agent: Agent) -> None:
    """R15 is for what was not heard: a client that has read its answer and hangs up at once keeps its claim."""
    for _ in range(50):
        todo = agent.push()
        with house.client(agent.credential) as http:
            (claimed,) = http.post("/v1/claims", json={"owner": "quick"}).json()["todos"]
        assert claimed["id"] == todo["id"]
        assert agent.verb("complete", claimed).status_code == 200


def test_a_client_that_hangs_up_while_it_waits_claims_nothing(house: House, agent: Agent) -> None:
    """A waiting claim whose client is gone is no claimer any more."""
    with asking(house, agent, "/v1/claims", {"owner": "gone", "wait_seconds": 30}) as sock:
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            sock.recv(1)
    todo = agent.push()
    (claimed,) = agent.claim(owner="next", wait_seconds=BACK_SECONDS_MAX)
    assert (claimed["id"], claimed["attempt"]) == (todo["id"], 1)


def test_the_next_of_a_completion_is_undone_and_the_completion_stands(house: House, agent: Agent) -> None:
    """R15, R32: `complete` with `next`, its answer lost: the work is done, the next todo is back, a repeat says `already`."""
    agent.push()
    (held,) = agent.claim()
    following = agent.push()
    path = f"/v1/todos/{held['id']}/complete"
    body = {"lease_token": held["lease_token"], "result": {"n": 1}, "next": {}}
    with locked_todos(house):
        cut(house, agent, path, body)
    wait_until(lambda: agent.get(held)["status"] == "done", seconds=BACK_SECONDS_MAX, what="the completion")
    wait_until(lambda: row(house, following)["state"] == "pending", seconds=BACK_SECONDS_MAX, what="the undo")
    assert_untouched(house, agent, following)
    refused = problem(agent.http.post(path, json=body), 409, "conflict")
    assert (refused["state"], refused["already"]) == ("done", True)
    assert agent.get(held)["result"] == {"n": 1}


@pytest.mark.parametrize(("verb", "state"), [("complete", "done"), ("fail", "failed"), ("release", "pending")])
def test_a_finish_whose_answer_was_lost_is_repeated_safely(house: House, agent: Agent, verb: str, state: str) -> None:
    """R32: the command went through, the caller does not know; the same call with the same token says that it is done."""
    agent.push()
    (held,) = agent.claim()
    path = f"/v1/todos/{held['id']}/{verb}"
    with locked_todos(house):
        cut(house, agent, path, {"lease_token": held["lease_token"]})
    wait_until(lambda: row(house, held)["state"] == state, seconds=BACK_SECONDS_MAX, what="the finish")
    refused = problem(agent.verb(verb, held), 409, "conflict")
    assert (refused["state"], refused["already"]) == (state, True)
    assert len(agent.get(held)["attempts"]) == 1


def test_a_create_whose_answer_was_lost_is_repeated_safely(house: House, agent: Agent) -> None:
    """R32: the same idempotency key gives the todo that the lost answer would have named."""
    body = {"queue": "work", "idempotency_key": "k", "payload": [1]}
    with locked_todos(house):
        cut(house, agent, "/v1/todos", body)
    wait_until(lambda: len(agent.http.get("/v1/todos").json()["todos"]) == 1, seconds=BACK_SECONDS_MAX, what="the create")
    reply = agent.http.post("/v1/todos", json=body)
    assert (reply.status_code, reply.json()["created"]) == (200, False)


def test_undone_claims_are_told_to_the_operator(house: House, agent: Agent) -> None:
    """C36, "count it": the log names the todo of each claim that was taken back."""
    todo = agent.push()
    with locked_todos(house):
        cut(house, agent, "/v1/claims", {})
    line = f'"event": "claim_undone", "todo_id": "{todo["id"]}"'
    wait_until(lambda: line in house.log(), seconds=BACK_SECONDS_MAX, what="its line in the log")
    assert_untouched(house, agent, todo)


def test_nothing_is_undone_twice(house: House, agent: Agent) -> None:
    """The token guards the undo: a todo that was taken back and claimed by another is left alone."""
    todo = agent.push()
    for n in range(5):
        with locked_todos(house):
            cut(house, agent, "/v1/claims", {"owner": f"gone-{n}"})
        (claimed,) = agent.claim(owner="keeps", wait_seconds=BACK_SECONDS_MAX)
        assert claimed["attempt"] == n + 1
        assert agent.verb("heartbeat", claimed).status_code == 200
        assert row(house, todo)["lease_token"] == claimed["lease_token"]
        agent.verb("release", claimed) if n < 4 else agent.verb("complete", claimed)
