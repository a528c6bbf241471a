"""The operator's table over HTTP: vending, rotating, revoking (R17), and todos of any endpoint."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import httpx
import pytest

from switchboard.endpoint import CREDENTIAL_PREFIX
from tests.houses import Agent, House, Opener
from tests.http.asking import (
    CALM,
    NEVER_MINTED,
    TODO_FIELDS,
    dead_letter,
    execute,
    is_id,
    locked_todos,
    post,
    problem,
    row,
)

ENDPOINT_FIELDS = {"name", "id", "queues", "created_at", "revoked_at"}
HEARD_OF_SECONDS_MAX = 1.0


@pytest.fixture(scope="module")
def house(calm_house: House) -> House:
    """A house without sweeps."""
    return calm_house


@pytest.fixture(scope="module")
def operator(house: House) -> httpx.Client:
    """The operator's client."""
    return house.operator()


@pytest.fixture
def agent(house: House) -> Agent:
    """An endpoint of the test's own."""
    return house.vend()


def endpoint(operator: httpx.Client, name: str, verb: str) -> httpx.Response:
    """`rotate` or `revoke`."""
    return operator.post(f"/operator/v1/endpoints/{name}/{verb}")


class TestVending:
    """`GET/POST /endpoints`."""

    def test_a_vended_endpoint_works_at_once(self, house: House, operator: httpx.Client) -> None:
        """201 with the endpoint and its credential; the credential opens the agents' doors."""
        name = f"fresh-{uuid4().hex[:8]}"
        reply = operator.post("/operator/v1/endpoints", json={"name": name})
        assert reply.status_code == 201
        assert reply.json().keys() == {"endpoint", "credential"}
        made = reply.json()["endpoint"]
        assert made.keys() == ENDPOINT_FIELDS
        assert (made["name"], made["queues"], made["revoked_at"]) == (name, None, None)
        assert is_id(made["id"])
        assert made["created_at"].endswith("Z")
        credential = reply.json()["credential"]
        assert credential.startswith(CREDENTIAL_PREFIX)
        with house.client(credential) as http:
            assert http.get("/v1/whoami").json()["id"] == made["id"]

    def test_its_queues_are_kept_once_each_in_order(self, operator: httpx.Client) -> None:
        """A scope is a set; what was written twice counts once."""
        reply = operator.post("/operator/v1/endpoints", json={"name": f"s-{uuid4().hex}", "queues": ["b", "a", "b"]})
        assert reply.json()["endpoint"]["queues"] == ["b", "a"]

    def test_a_name_that_is_taken_is_a_conflict(self, operator: httpx.Client, agent: Agent) -> None:
        """409, and the endpoint that has it goes on as it was."""
        problem(operator.post("/operator/v1/endpoints", json={"name": agent.name, "queues": ["a"]}), 409, "conflict")
        assert agent.http.get("/v1/whoami").json()["queues"] is None

    def test_a_revoked_name_may_be_vended_again(self, house: House, operator: httpx.Client, agent: Agent) -> None:
        """It is another endpoint: another id, nothing of the old one's todos, and the old credential stays dead."""
        todo = agent.push()
        endpoint(operator, agent.name, "revoke")
        again = house.vend(agent.name)
        assert again.id != agent.id
        assert again.http.get("/v1/todos").json()["todos"] == []
        problem(again.http.get(f"/v1/todos/{todo['id']}"), 404, "not_found")
        problem(agent.http.get("/v1/whoami"), 401, "unauthorized")

    def test_credentials_are_stored_as_digests(self, house: House, agent: Agent) -> None:
        """R28: nothing in the table opens anything."""
        stored = execute(house, "select to_json(e)::text from endpoints e where id = %s", agent.id)
        assert agent.credential not in stored[0][0]
        assert agent.credential.removeprefix(CREDENTIAL_PREFIX) not in stored[0][0]

    def test_the_list_shows_every_endpoint(self, operator: httpx.Client, house: House) -> None:
        """The revoked ones too, oldest first, and no credential."""
        first, second = house.vend(), house.vend(queues=["a"])
        endpoint(operator, first.name, "revoke")
        reply = operator.get("/operator/v1/endpoints")
        assert reply.json().keys() == {"endpoints"}
        listed = reply.json()["endpoints"]
        assert all(each.keys() == ENDPOINT_FIELDS for each in listed)
        by_id = {each["id"]: each for each in listed}
        assert by_id[first.id]["revoked_at"] is not None
        assert (by_id[second.id]["queues"], by_id[second.id]["revoked_at"]) == (["a"], None)
        assert [each["created_at"] for each in listed] == sorted(each["created_at"] for each in listed)


class TestRotating:
    """`POST /endpoints/{name}/rotate`."""

    def test_the_old_credential_is_refused_at_once(self, house: House, operator: httpx.Client, agent: Agent) -> None:
        """200 with the new one; the todos stay."""
        todo = agent.push()
        assert agent.http.get("/v1/whoami").status_code == 200
        reply = endpoint(operator, agent.name, "rotate")
        assert reply.status_code == 200
        assert reply.json().keys() == {"endpoint", "credential"}
        assert reply.json()["endpoint"]["id"] == agent.id
        problem(agent.http.get("/v1/whoami"), 401, "unauthorized")
        with house.client(reply.json()["credential"]) as http:
            assert http.get(f"/v1/todos/{todo['id']}").status_code == 200

    def test_a_lease_survives_it(self, house: House, operator: httpx.Client, agent: Agent) -> None:
        """Whoever holds a todo goes on with the new credential and the same lease token."""
        agent.push()
        (claimed,) = agent.claim()
        credential = endpoint(operator, agent.name, "rotate").json()["credential"]
        with house.client(credential) as http:
            reply = http.post(f"/v1/todos/{claimed['id']}/complete", json={"lease_token": claimed["lease_token"]})
            assert reply.status_code == 200

    @pytest.mark.parametrize("verb", ["rotate", "revoke"])
    def test_what_is_not_there_is_not_found(self, operator: httpx.Client, agent: Agent, verb: str) -> None:
        """404 for an unknown name, one that could not be a name, and a revoked one."""
        for name in ("nobody-at-all", "A", "x" * 64, "%20", "%C3%A9", "a.b"):
            problem(endpoint(operator, name, verb), 404, "not_found")
        endpoint(operator, agent.name, "revoke")
        problem(endpoint(operator, agent.name, verb), 404, "not_found")

    @pytest.mark.parametrize("verb", ["rotate", "revoke"])
    def test_a_name_that_no_text_of_the_database_can_be(self, operator: httpx.Client, verb: str) -> None:
        """C1: a NUL in the path names nobody."""
        problem(endpoint(operator, "%00", verb), 404, "not_found")


class TestRevoking:
    """R17: `POST /endpoints/{name}/revoke`."""

    def test_its_credential_is_refused_at_once(self, operator: httpx.Client, agent: Agent) -> None:
        """200 with the endpoint and the count; the very next call is 401, whatever it asks for."""
        todo = agent.push()
        reply = endpoint(operator, agent.name, "revoke")
        assert reply.status_code == 200
        assert reply.json().keys() == {"endpoint", "dead_lettered"}
        assert reply.json()["endpoint"]["revoked_at"] is not None
        assert reply.json()["dead_lettered"] == 1
        problem(agent.http.get("/v1/whoami"), 401, "unauthorized")
        problem(agent.http.post("/v1/todos", json={"queue": "q"}), 401, "unauthorized")
        problem(agent.http.post("/v1/claims"), 401, "unauthorized")
        problem(agent.verb("claim", todo), 401, "unauthorized")

    def test_its_open_todos_are_dead_lettered(self, house: House, operator: httpx.Client, agent: Agent) -> None:
        """Pending, claimed and parked alike, with the reason; what had ended stays as it was."""
        agent.push()
        done = agent.verb("complete", agent.claim()[0]).json()["todo"]
        dead = dead_letter(agent)
        agent.push()
        parked = agent.verb("fail", agent.claim()[0], error="mine").json()["todo"]
        agent.push()
        (claimed,) = agent.claim(owner="w1")
        pending = agent.push()
        before = {todo["id"]: row(house, todo) for todo in (done, dead)}
        assert endpoint(operator, agent.name, "revoke").json()["dead_lettered"] == 3
        for todo in (parked, claimed, pending):
            found = operator.get(f"/operator/v1/todos/{todo['id']}").json()["todo"]
            assert (found["status"], found["error"]) == ("dead", "endpoint revoked")
            assert [found[name] for name in ("lease_token", "lease_expires_at", "next_retry_at")] == [None] * 3
            assert found["completed_at"] is not None
        ended = operator.get(f"/operator/v1/todos/{claimed['id']}").json()["todo"]["attempts"]
        assert [(attempt["owner"], attempt["outcome"]) for attempt in ended] == [("w1", "revoked")]
        for todo in (done, dead):
            assert row(house, todo) == before[todo["id"]]

    def test_more_than_one_sweep_is_needed(self, house: House, operator: httpx.Client, agent: Agent) -> None:
        """The count is of all of them, though they are swept in bounded batches."""
        for _ in range(3):
            agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "q"} for _ in range(500)]})
        assert endpoint(operator, agent.name, "revoke").json()["dead_lettered"] == 1_500
        ((left,),) = execute(house, "select count(*) from todos where endpoint_id = %s and state <> 'failed'", agent.id)
        assert left == 0

    def test_nothing_of_it_comes_back(self, operator: httpx.Client, agent: Agent) -> None:
        """A revoked endpoint's todos are not retried, one by one or in bulk, and none is made for it."""
        todo = agent.push()
        endpoint(operator, agent.name, "revoke")
        problem(operator.post(f"/operator/v1/todos/{todo['id']}/retry"), 409, "conflict")
        assert operator.post("/operator/v1/todos/retry", json={"endpoint": agent.name}).json() == {"retried": 0, "conflicts": 0}
        problem(operator.post("/operator/v1/todos", json={"endpoint": agent.name, "queue": "q"}), 409, "conflict")

    def test_its_holder_hears_of_it(self, operator: httpx.Client, agent: Agent) -> None:
        """A worker in the middle of its work gets 401, not a lost answer."""
        agent.push()
        (claimed,) = agent.claim()
        endpoint(operator, agent.name, "revoke")
        problem(agent.verb("complete", claimed), 401, "unauthorized")

    def test_another_house_on_the_same_database_refuses_within_a_second(self, open_house: Opener) -> None:
        """R17: revoked and rotated credentials are remembered nowhere for longer than that."""
        house = open_house(settings=CALM)
        other = open_house(settings=CALM, database=house.database)
        for verb in ("revoke", "rotate"):
            agent = house.vend()
            with other.client(agent.credential) as http:
                assert http.get("/v1/whoami").status_code == 200
                assert endpoint(house.operator(), agent.name, verb).status_code == 200
                revoked = asked = time.monotonic()
                while http.get("/v1/whoami").status_code == 200:
                    # What it remembers was asked for before the revoke, so a second after it nothing is left of it.
                    assert asked - revoked < HEARD_OF_SECONDS_MAX
                    asked = time.monotonic()
                problem(http.post("/v1/claims"), 401, "unauthorized")


class TestTodosOfAnyEndpoint:
    """`/operator/v1/todos`: the agents' verbs over every endpoint."""

    def test_create_names_its_endpoint(self, operator: httpx.Client, agent: Agent) -> None:
        """201 for a todo of that endpoint, its source `operator`; 200 for a live twin; the agent claims it."""
        body = {"endpoint": agent.name, "queue": "work", "payload": {"a": 1}, "idempotency_key": "k", "title": "t"}
        reply = operator.post("/operator/v1/todos", json=body)
        assert reply.status_code == 201
        assert reply.json().keys() == {"todo", "created"}
        todo = reply.json()["todo"]
        assert todo.keys() == TODO_FIELDS
        assert (todo["endpoint_id"], todo["source"], todo["payload"]) == (agent.id, "operator", {"a": 1})
        again = operator.post("/operator/v1/todos", json=body)
        assert (again.status_code, again.json()["created"], again.json()["todo"]["id"]) == (200, False, todo["id"])
        assert [each["id"] for each in agent.claim()] == [todo["id"]]

    def test_create_needs_a_live_endpoint_and_a_queue_of_its(self, house: House, operator: httpx.Client) -> None:
        """404 for a name that nobody has, 403 for a queue out of its scope, 422 without a name."""
        problem(operator.post("/operator/v1/todos", json={"endpoint": "nobody-at-all", "queue": "q"}), 404, "not_found")
        limited = house.vend(queues=["in"])
        problem(operator.post("/operator/v1/todos", json={"endpoint": limited.name, "queue": "out"}), 403, "forbidden")
        problem(operator.post("/operator/v1/todos", json={"queue": "q"}), 422, "invalid", "endpoint")
        problem(post(operator, "/operator/v1/todos", b""), 400, "invalid")

    def test_the_list_spans_endpoints_newest_first(self, house: House, operator: httpx.Client) -> None:
        """Everybody's todos, or those of one; the agents' filters and paging; compact rows."""
        one, other = house.vend(), house.vend()
        queue = f"span-{uuid4().hex}"
        ids = [agent.push(queue)["id"] for _ in range(5) for agent in (one, other)][::-1]
        seen: list[str] = []
        cursor = None
        while True:
            query = {"queue": queue, "limit": "3"} | ({"cursor": cursor} if cursor else {})
            page = operator.get("/operator/v1/todos", params=query).json()
            assert page.keys() == {"todos", "next_cursor"}
            assert all(todo.keys() == TODO_FIELDS - {"payload", "result"} for todo in page["todos"])
            seen += [todo["id"] for todo in page["todos"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert seen == ids
        mine = operator.get("/operator/v1/todos", params={"endpoint": one.name}).json()["todos"]
        assert [todo["id"] for todo in mine] == ids[1::2]
        dead = dead_letter(other, queue=queue)
        for query in ({"status": "dead"}, {"state": "failed"}):
            found = operator.get("/operator/v1/todos", params=query | {"queue": queue}).json()["todos"]
            assert [todo["id"] for todo in found] == [dead["id"]]
        problem(operator.get("/operator/v1/todos", params={"endpoint": "nobody-at-all"}), 404, "not_found")
        problem(operator.get("/operator/v1/todos", params={"limit": "201"}), 422, "invalid", "limit")
        problem(operator.get("/operator/v1/todos", params={"endpoint": "Not A Name"}), 422, "invalid", "endpoint")

    def test_the_list_shows_what_a_revoked_endpoint_left(self, operator: httpx.Client, agent: Agent) -> None:
        """By its name, as long as nobody else has it."""
        todo = agent.push()
        endpoint(operator, agent.name, "revoke")
        listed = operator.get("/operator/v1/todos", params={"endpoint": agent.name}).json()["todos"]
        assert [(each["id"], each["status"]) for each in listed] == [(todo["id"], "dead")]

    def test_one_todo_is_read_whole_but_for_its_token(self, operator: httpx.Client, agent: Agent) -> None:
        """Payload, result, history; the lease token is for its claimer only."""
        agent.push(payload=[1])
        (claimed,) = agent.claim(owner="w1")
        reply = operator.get(f"/operator/v1/todos/{claimed['id']}")
        assert reply.json().keys() == {"todo"}
        todo = reply.json()["todo"]
        assert todo.keys() == TODO_FIELDS | {"attempts"}
        assert (todo["payload"], todo["owner"], todo["lease_token"]) == ([1], "w1", None)
        assert [(attempt["owner"], attempt["outcome"]) for attempt in todo["attempts"]] == [("w1", None)]

    def test_claim_by_the_operator(self, operator: httpx.Client, agent: Agent) -> None:
        """`operator` unless somebody else is named; with the token, since it is the claimer; 409 while it is held."""
        todo = agent.push()
        claimed = operator.post(f"/operator/v1/todos/{todo['id']}/claim").json()["todo"]
        assert (claimed["owner"], claimed["status"]) == ("operator", "claimed")
        assert claimed["lease_token"] is not None
        assert agent.claim() == []
        problem(operator.post(f"/operator/v1/todos/{todo['id']}/claim", json={"owner": "me"}), 409, "conflict")
        done = operator.post(f"/operator/v1/todos/{todo['id']}/complete", json={"lease_token": claimed["lease_token"]})
        assert done.json()["todo"]["status"] == "done"

    @pytest.mark.parametrize(
        ("verb", "body", "status"),
        [
            ("release", {}, "pending"),
            ("fail", {"error": "given up on"}, "retrying"),
            ("complete", {"result": {"by": "hand"}}, "done"),
        ],
    )
    def test_anothers_stuck_lease_is_ended(
        self, operator: httpx.Client, agent: Agent, verb: str, body: dict[str, Any], status: str
    ) -> None:
        """Without a guard, whoever holds it; the holder's own finish is then a conflict."""
        agent.push()
        (claimed,) = agent.claim(owner="stuck")
        reply = operator.post(f"/operator/v1/todos/{claimed['id']}/{verb}", json=body)
        assert reply.status_code == 200
        assert reply.json().keys() == {"todo"}
        assert reply.json()["todo"]["status"] == status
        refused = problem(agent.verb("heartbeat", claimed), 409, "conflict")
        assert "already" not in refused
        found = operator.get(f"/operator/v1/todos/{claimed['id']}").json()["todo"]
        assert found["error"] == body.get("error")
        assert found["result"] == body.get("result")

    @pytest.mark.parametrize("verb", ["release", "fail", "complete"])
    def test_a_guard_that_is_given_must_match(self, operator: httpx.Client, agent: Agent, verb: str) -> None:
        """An operator who names the owner or the token means that one."""
        agent.push()
        (claimed,) = agent.claim(owner="w1")
        path = f"/operator/v1/todos/{claimed['id']}/{verb}"
        for body in ({"owner": "w2"}, {"lease_token": str(uuid4())}, {"owner": "w2", "lease_token": claimed["lease_token"]}):
            assert problem(operator.post(path, json=body), 409, "conflict")["state"] == "claimed"
        assert operator.post(path, json={"owner": "w1", "lease_token": claimed["lease_token"]}).status_code == 200

    @pytest.mark.parametrize("verb", ["release", "fail", "complete"])
    def test_what_is_not_claimed_is_a_conflict(self, operator: httpx.Client, agent: Agent, verb: str) -> None:
        """The operator's verbs are the agents' transitions, no more."""
        todo = agent.push()
        assert problem(operator.post(f"/operator/v1/todos/{todo['id']}/{verb}"), 409, "conflict")["state"] == "pending"

    def test_retry_one(self, operator: httpx.Client, agent: Agent) -> None:
        """R8, by the operator."""
        dead = dead_letter(agent)
        todo = operator.post(f"/operator/v1/todos/{dead['id']}/retry").json()["todo"]
        assert (todo["status"], todo["attempt"]) == ("pending", 0)
        assert problem(operator.post(f"/operator/v1/todos/{dead['id']}/retry"), 409, "conflict")["state"] == "pending"

    def test_what_is_nowhere_is_not_found(self, operator: httpx.Client) -> None:
        """404 on every verb."""
        problem(operator.get(f"/operator/v1/todos/{NEVER_MINTED}"), 404, "not_found")
        for verb in ("claim", "complete", "fail", "release", "retry"):
            problem(operator.post(f"/operator/v1/todos/{NEVER_MINTED}/{verb}"), 404, "not_found")


class TestRetryInBulk:
    """`POST /operator/v1/todos/retry`."""

    def retry(self, operator: httpx.Client, **body: Any) -> dict[str, Any]:
        """Retries by filter."""
        reply = operator.post("/operator/v1/todos/retry", json=body)
        assert reply.status_code == 200, reply.text
        counted: dict[str, Any] = reply.json()
        assert counted.keys() == {"retried", "conflicts"}
        return counted

    def test_by_queue_and_status(self, operator: httpx.Client, agent: Agent) -> None:
        """Only what the filter names moves; dead letters and open windows can be told apart."""
        dead = [dead_letter(agent, queue=queue)["id"] for queue in ("a", "a", "b")]
        agent.push("a")
        parked = agent.verb("fail", agent.claim(queue="a")[0]).json()["todo"]["id"]
        assert self.retry(operator, endpoint=agent.name, queue="a", status="dead") == {"retried": 2, "conflicts": 0}
        status = {todo["id"]: todo["status"] for todo in agent.http.get("/v1/todos").json()["todos"]}
        assert status == {dead[0]: "pending", dead[1]: "pending", dead[2]: "dead", parked: "retrying"}
        assert self.retry(operator, endpoint=agent.name, status="retrying") == {"retried": 1, "conflicts": 0}
        assert self.retry(operator, endpoint=agent.name) == {"retried": 1, "conflicts": 0}
        assert self.retry(operator, endpoint=agent.name) == {"retried": 0, "conflicts": 0}

    def test_over_endpoints(self, house: House, operator: httpx.Client) -> None:
        """Without `endpoint`, everybody's; only of the queue that is named."""
        queue = f"bulk-{uuid4().hex}"
        for _ in range(2):
            dead_letter(house.vend(), queue=queue)
        assert self.retry(operator, queue=queue) == {"retried": 2, "conflicts": 0}

    def test_by_age_and_limit(self, operator: httpx.Client, agent: Agent) -> None:
        """`before` is an instant of creation; `limit` takes the oldest first."""
        dead = [dead_letter(agent) for _ in range(4)]
        assert self.retry(operator, endpoint=agent.name, before=dead[3]["created_at"], limit=2)["retried"] == 2
        status = [agent.get(todo)["status"] for todo in dead]
        assert status == ["pending", "pending", "dead", "dead"]
        assert self.retry(operator, endpoint=agent.name, before=dead[3]["created_at"])["retried"] == 1
        assert self.retry(operator, endpoint=agent.name, before=dead[0]["created_at"])["retried"] == 0

    def test_conflicts_are_counted_and_stop_nothing(self, operator: httpx.Client, agent: Agent) -> None:
        """R8, R10: a todo whose key a live twin holds stays dead; the others go."""
        blocked = dead_letter(agent, idempotency_key="k")
        agent.push(idempotency_key="k")
        free = [dead_letter(agent) for _ in range(3)]
        assert self.retry(operator, endpoint=agent.name) == {"retried": 3, "conflicts": 1}
        assert agent.get(blocked)["status"] == "dead"
        assert {agent.get(todo)["status"] for todo in free} == {"pending"}

    def test_of_two_dead_twins_one_comes_back(self, operator: httpx.Client, agent: Agent) -> None:
        """R8: the older one takes the key, the younger one then finds it taken."""
        first, second = dead_letter(agent, idempotency_key="k"), dead_letter(agent, idempotency_key="k")
        assert self.retry(operator, endpoint=agent.name) == {"retried": 1, "conflicts": 1}
        assert [agent.get(todo)["status"] for todo in (first, second)] == ["pending", "dead"]

    def test_more_than_one_commit(self, operator: httpx.Client, agent: Agent) -> None:
        """The largest bulk is done whole, a bounded batch at a time."""
        agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "q", "max_attempts": 1} for _ in range(1_000)]})
        agent.http.post("/v1/todos/fail", json={"items": [{"id": todo["id"]} for todo in agent.claim(max=1_000)]})
        assert self.retry(operator, endpoint=agent.name) == {"retried": 1_000, "conflicts": 0}
        assert len(agent.claim(max=1_000)) == 1_000

    def test_a_waiting_claim_hears_of_it(self, operator: httpx.Client, agent: Agent) -> None:
        """R25: an explicit retry rings: the claim that follows needs no second."""
        dead = dead_letter(agent)
        self.retry(operator, endpoint=agent.name)
        assert [todo["id"] for todo in agent.claim(wait_seconds=5)] == [dead["id"]]

    def test_an_unknown_endpoint_is_not_found(self, operator: httpx.Client) -> None:
        """404 rather than a zero that means nothing."""
        problem(operator.post("/operator/v1/todos/retry", json={"endpoint": "nobody-at-all"}), 404, "not_found")


def test_the_operator_is_answered_while_todos_are_locked(house: House, operator: httpx.Client, agent: Agent) -> None:
    """Endpoints are listed and vended though every todo is locked; a todo's verb is 503 with Retry-After in bounded time."""
    todo = agent.push()
    with locked_todos(house):
        assert operator.get("/operator/v1/endpoints").status_code == 200
        house.vend()
        began = time.monotonic()
        reply = operator.post(f"/operator/v1/todos/{todo['id']}/release")
        problem(reply, 503, "unavailable")
        assert int(reply.headers["retry-after"]) >= 1
        assert time.monotonic() - began < 9
    assert operator.get(f"/operator/v1/todos/{todo['id']}").json()["todo"]["status"] == "pending"
