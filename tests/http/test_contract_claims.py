"""Claims and the verbs of a claim's holder over HTTP: by id, the next ones, guards, fields after the end, batches."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
import trio

from tests.houses import Agent, House, Opener
from tests.http.asking import (
    LEASE_FIELDS,
    NEVER_MINTED,
    TODO_FIELDS,
    dead_letter,
    error,
    execute,
    let_lapse,
    let_window_pass,
    many,
    post,
    problem,
    row,
)

HOLDER_VERBS = ("heartbeat", "complete", "fail", "release")
FINISHES = ("complete", "fail", "release")


@pytest.fixture(scope="module")
def house(each_lane: House) -> House:
    """A house without sweeps, asked through either lane."""
    return each_lane


@pytest.fixture
def agent(house: House) -> Agent:
    """An endpoint of the test's own."""
    return house.vend()


def seconds_left(house: House, todo: dict[str, Any]) -> float:
    """How long the lease still runs, on the database's clock."""
    ((left,),) = execute(
        house,
        "select extract(epoch from lease_expires_at - clock_timestamp())::float8 from todos where id = %s",
        todo["id"],
    )
    return float(left)


class TestClaimingTheNext:
    """`POST /v1/claims`."""

    def test_it_answers_the_whole_todo(self, agent: Agent) -> None:
        """200, a list; payload, a fresh lease token and the lease's end on the claimed todo."""
        pushed = agent.push(payload={"a": 1})
        reply = agent.http.post("/v1/claims", json={"owner": "w1", "lease_seconds": 60})
        assert reply.status_code == 200
        assert reply.json().keys() == {"todos"}
        (todo,) = reply.json()["todos"]
        assert todo.keys() == TODO_FIELDS
        assert (todo["id"], todo["state"], todo["status"]) == (pushed["id"], "claimed", "claimed")
        assert (todo["owner"], todo["attempt"], todo["payload"]) == ("w1", 1, {"a": 1})
        assert todo["lease_token"] is not None
        assert todo["claimed_at"] is not None
        assert todo["completed_at"] is None
        lasts = datetime.fromisoformat(todo["lease_expires_at"]) - datetime.fromisoformat(todo["claimed_at"])
        assert abs(lasts - timedelta(seconds=60)) < timedelta(seconds=1)

    def test_nothing_to_do_is_an_empty_list(self, agent: Agent) -> None:
        """200 with no todos: the store's "not found" stays inside (rulings, preamble)."""
        reply = agent.http.post("/v1/claims", json={})
        assert (reply.status_code, reply.json()) == (200, {"todos": []})

    def test_a_claim_needs_no_body(self, agent: Agent) -> None:
        """An empty body is every default: any queue, the endpoint's name, the server's lease, one todo."""
        agent.push("anything")
        agent.push("anything")
        (todo,) = agent.http.post("/v1/claims").json()["todos"]
        assert todo["owner"] == agent.name
        lasts = datetime.fromisoformat(todo["lease_expires_at"]) - datetime.fromisoformat(todo["claimed_at"])
        assert abs(lasts - timedelta(seconds=300)) < timedelta(seconds=1)

    def test_one_queue_several_or_any(self, agent: Agent) -> None:
        """`queue`, `queues`, or neither; each is a fence, and over several queues the oldest todo goes first."""
        ids = {name: agent.push(name)["id"] for name in ("c", "a", "b", "d")}
        assert agent.claim(queue="nowhere") == []
        assert [todo["id"] for todo in agent.claim(queue="d")] == [ids["d"]]
        assert [todo["id"] for todo in agent.claim(queues=["b", "c", "b"], max=9)] == [ids["c"], ids["b"]]
        assert [todo["id"] for todo in agent.claim()] == [ids["a"]]

    def test_queue_and_queues_together_are_refused(self, agent: Agent) -> None:
        """Nobody has to wonder which one counts."""
        problem(agent.http.post("/v1/claims", json={"queue": "a", "queues": ["b"]}), 422, "invalid", "queues")

    def test_max_is_a_bound_and_the_order_is_by_age(self, agent: Agent) -> None:
        """R9: pending todos in strict order of age, as many as asked for, as many as there are."""
        ids = [agent.push(title=str(n))["id"] for n in range(5)]
        assert [todo["id"] for todo in agent.claim(max=3)] == ids[:3]
        assert [todo["id"] for todo in agent.claim(max=1_000)] == ids[3:]

    def test_each_todo_of_a_claim_has_its_own_token(self, agent: Agent) -> None:
        """R4: a fresh token for every claim, also of one batch."""
        for _ in range(20):
            agent.push()
        assert len({todo["lease_token"] for todo in agent.claim(max=20)}) == 20

    def test_an_assigned_todo_is_for_its_assignee(self, agent: Agent) -> None:
        """SPEC-0003 Direct assignment is respected."""
        todo = agent.push(assignee="alice")
        assert agent.claim(owner="bob") == []
        assert agent.claim() == []
        assert [each["id"] for each in agent.claim(owner="alice")] == [todo["id"]]

    def test_a_claimed_todo_is_invisible_to_other_claims(self, agent: Agent) -> None:
        """SPEC-0003 Claimed todo is invisible to other consumers."""
        agent.push()
        assert len(agent.claim(owner="w1")) == 1
        assert agent.claim(owner="w2") == []

    def test_a_lapsed_lease_is_claimable_at_once(self, house: House, agent: Agent) -> None:
        """R9; SPEC-0003 Requeue is not lost merely because no reaper has run yet."""
        todo = agent.push()
        (first,) = agent.claim(owner="w1")
        let_lapse(house, todo)
        (second,) = agent.claim(owner="w2")
        assert (second["id"], second["attempt"], second["owner"]) == (todo["id"], 2, "w2")
        assert second["lease_token"] != first["lease_token"]
        assert [attempt["outcome"] for attempt in agent.get(todo)["attempts"]] == ["expired", None]

    def test_a_due_retry_is_claimable_at_once(self, house: House, agent: Agent) -> None:
        """R9; SPEC-0003: a claim arriving after the window may take it directly, and one before may not."""
        todo = agent.push()
        agent.verb("fail", agent.claim()[0], error="first")
        assert agent.claim() == []
        let_window_pass(house, todo)
        (again,) = agent.claim()
        assert (again["id"], again["attempt"], again["next_retry_at"]) == (todo["id"], 2, None)

    def test_a_lapsed_lease_at_the_cap_is_never_handed_out(self, house: House, agent: Agent) -> None:
        """R9: dead-lettered by the scan or left to the reaper; never claimed again."""
        todo = agent.push(max_attempts=1)
        agent.claim()
        let_lapse(house, todo)
        assert agent.claim() == []
        assert problem(agent.verb("claim", todo), 409, "conflict")["state"] in ("claimed", "failed")

    def test_a_backlog_does_not_starve_what_is_overdue(self, house: House, agent: Agent) -> None:
        """R9: at least once a second for each queue, due and lapsed todos go before pending ones."""
        overdue = agent.push(title="overdue")
        agent.claim()
        agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "work"} for _ in range(1_000)]})
        let_lapse(house, overdue)
        until = time.monotonic() + 5
        while time.monotonic() < until:
            ((todo,),) = [agent.claim()]
            if todo["id"] == overdue["id"]:
                return
        raise AssertionError("pending todos went before it for five seconds")


class TestClaimingById:
    """`POST /v1/todos/{id}/claim`."""

    def test_it_claims_that_very_todo(self, agent: Agent) -> None:
        """200 `{"todo"}`, however many older ones wait."""
        agent.push()
        todo = agent.push(payload=[1])
        reply = agent.verb("claim", todo, owner="w1", lease_seconds=30)
        assert reply.status_code == 200
        assert reply.json().keys() == {"todo"}
        claimed = reply.json()["todo"]
        assert claimed.keys() == TODO_FIELDS
        assert (claimed["id"], claimed["owner"], claimed["attempt"]) == (todo["id"], "w1", 1)
        assert claimed["payload"] == [1]
        assert claimed["lease_token"] is not None

    def test_owner_defaults_to_the_endpoints_name(self, agent: Agent) -> None:
        """With no body at all, too."""
        reply = agent.http.post(f"/v1/todos/{agent.push()['id']}/claim")
        assert reply.json()["todo"]["owner"] == agent.name

    def test_what_is_claimed_is_a_conflict(self, agent: Agent) -> None:
        """SPEC-0003: claiming a todo that exists but is not claimable is a conflict, by its own holder as well."""
        todo = agent.push()
        agent.verb("claim", todo, owner="w1")
        for owner in ("w1", "w2"):
            assert problem(agent.verb("claim", todo, owner=owner), 409, "conflict")["state"] == "claimed"

    def test_what_is_assigned_to_another_is_a_conflict(self, agent: Agent) -> None:
        """SPEC-0003 Direct assignment is respected, by id too."""
        todo = agent.push(assignee="alice")
        assert problem(agent.verb("claim", todo, owner="bob"), 409, "conflict")["state"] == "pending"
        assert agent.verb("claim", todo, owner="alice").status_code == 200

    def test_what_has_ended_is_a_conflict(self, agent: Agent) -> None:
        """SPEC-0003 Terminal states are final."""
        dead = dead_letter(agent)
        assert problem(agent.verb("claim", dead), 409, "conflict")["state"] == "failed"
        agent.push()
        done = agent.verb("complete", agent.claim()[0]).json()["todo"]
        assert problem(agent.verb("claim", done), 409, "conflict")["state"] == "done"

    def test_a_parked_todo_is_a_conflict_until_its_window_has_passed(self, house: House, agent: Agent) -> None:
        """SPEC-0003: it must not be claimable before `next_retry_at`."""
        todo = agent.push()
        agent.verb("fail", agent.claim()[0])
        assert problem(agent.verb("claim", todo), 409, "conflict")["state"] == "failed"
        let_window_pass(house, todo)
        assert agent.verb("claim", todo).json()["todo"]["attempt"] == 2


class TestTheGuard:
    """Who may use a holder's verb: the token alone; the owner alone; both must match; neither is the endpoint's name (R4)."""

    @pytest.fixture
    def claimed(self, agent: Agent) -> dict[str, Any]:
        """A todo that `w1` holds."""
        agent.push()
        (todo,) = agent.claim(owner="w1")
        return todo

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    @pytest.mark.parametrize(
        ("owner", "token", "status"),
        [
            (None, "right", 200),
            ("w1", None, 200),
            ("w1", "right", 200),
            ("w2", None, 409),
            ("w2", "right", 409),
            (None, "wrong", 409),
            ("w1", "wrong", 409),
            (None, None, 409),  # the endpoint's name is not w1
        ],
    )
    def test_of_each_verb(
        self, house: House, agent: Agent, claimed: dict[str, Any], verb: str, owner: str | None, token: str | None, status: int
    ) -> None:
        """One table for all four verbs; what is refused changes nothing and says that it is claimed."""
        body: dict[str, Any] = {"owner": owner} if owner else {}
        if token:
            body["lease_token"] = claimed["lease_token"] if token == "right" else str(uuid4())
        before = row(house, claimed)
        reply = agent.http.post(f"/v1/todos/{claimed['id']}/{verb}", json=body)
        assert reply.status_code == status, reply.text
        if status == 409:
            assert problem(reply, 409, "conflict")["state"] == "claimed"
            assert "already" not in reply.json()
            assert row(house, claimed) == before

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_neither_means_the_endpoints_name(self, agent: Agent, verb: str) -> None:
        """A worker that claimed without an owner needs none, and no body, for the verbs either."""
        agent.push()
        (todo,) = agent.claim()
        assert agent.http.post(f"/v1/todos/{todo['id']}/{verb}").status_code == 200

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_null_is_absent(self, agent: Agent, claimed: dict[str, Any], verb: str) -> None:
        """`owner: null` beside a token is the token alone."""
        body = {"owner": None, "lease_token": claimed["lease_token"]}
        assert agent.http.post(f"/v1/todos/{claimed['id']}/{verb}", json=body).status_code == 200

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_a_pending_todo_is_held_by_nobody(self, agent: Agent, verb: str) -> None:
        """SPEC-0003 Only defined transitions are honored: a conflict that names the state, nothing is marked."""
        todo = agent.push()
        assert problem(agent.verb(verb, todo), 409, "conflict")["state"] == "pending"
        assert agent.get(todo)["status"] == "pending"

    def test_two_workers_of_one_name_are_told_apart_by_token(self, house: House, agent: Agent) -> None:
        """C35: the first incarnation of w1 comes back with its old token after w1 claimed again: 409 to all of it (R4)."""
        todo = agent.push()
        (first,) = agent.claim(owner="w1")
        let_lapse(house, todo)
        (second,) = agent.claim(owner="w1")
        before = row(house, todo)
        for verb in HOLDER_VERBS:
            for body in ({"lease_token": first["lease_token"]}, {"lease_token": first["lease_token"], "owner": "w1"}):
                reply = agent.http.post(f"/v1/todos/{todo['id']}/{verb}", json=body)
                assert problem(reply, 409, "conflict")["state"] == "claimed"
        assert row(house, todo) == before
        assert agent.verb("complete", second).status_code == 200

    def test_whoever_lost_the_lease_gets_409_and_disturbs_nobody(self, house: House, agent: Agent) -> None:
        """C34: A's lease lapses, B claims; A completes, fails, beats: 409, and B's lease is not moved."""
        todo = agent.push()
        (first,) = agent.claim(owner="a", lease_seconds=1)
        let_lapse(house, todo)
        (second,) = agent.claim(owner="b", lease_seconds=30)
        before = row(house, todo)
        for verb in HOLDER_VERBS:
            problem(agent.verb(verb, first), 409, "conflict")
            problem(agent.verb(verb, todo["id"], owner="a"), 409, "conflict")
        assert row(house, todo) == before
        assert agent.verb("complete", second).json()["todo"]["owner"] == "b"

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_a_lapsed_lease_that_nobody_took_still_counts(self, house: House, agent: Agent, verb: str) -> None:
        """R5: the work is done; throwing it away helps nobody. All verbs alike."""
        todo = agent.push()
        (claimed,) = agent.claim(owner="w1")
        let_lapse(house, todo)
        assert agent.verb(verb, claimed).status_code == 200

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_a_token_that_is_no_uuid_is_named(self, agent: Agent, claimed: dict[str, Any], verb: str) -> None:
        """A lease token is a field like any other: malformed is 422 (R27)."""
        problem(agent.verb(verb, claimed, lease_token="mine"), 422, "invalid", "lease_token")
        problem(agent.verb(verb, claimed, lease_token=7), 422, "invalid", "lease_token")


class TestHeartbeat:
    """`POST /v1/todos/{id}/heartbeat`."""

    def test_it_answers_the_todo_to_its_claimer(self, agent: Agent) -> None:
        """200 `{"todo"}` with the same lease token; the payload is not moved for a heartbeat."""
        agent.push(payload={"big": "one"})
        (claimed,) = agent.claim()
        reply = agent.verb("heartbeat", claimed)
        assert reply.json().keys() == {"todo"}
        todo = reply.json()["todo"]
        assert (todo["status"], todo["lease_token"], todo["attempt"]) == ("claimed", claimed["lease_token"], 1)
        assert todo["payload_bytes"] == claimed["payload_bytes"]
        assert TODO_FIELDS - {"payload", "result"} <= todo.keys()

    def test_the_token_is_shown_to_who_has_it(self, agent: Agent) -> None:
        """R4: the owner's name alone proves no claim: two workers may share it, and neither learns the other's token."""
        agent.push()
        (claimed,) = agent.claim(owner="w1")
        assert agent.verb("heartbeat", claimed["id"], owner="w1").json()["todo"]["lease_token"] is None
        items = [{"id": claimed["id"], "owner": "w1"}, {"id": claimed["id"], "lease_token": claimed["lease_token"]}]
        first, second = agent.http.post("/v1/todos/heartbeat", json={"items": items}).json()["results"]
        assert (first["todo"]["lease_token"], second["todo"]["lease_token"]) == (None, claimed["lease_token"])

    def test_without_a_duration_it_renews_by_the_claims_own(self, house: House, agent: Agent) -> None:
        """R6: the claim's own lease duration, from now."""
        agent.push()
        (claimed,) = agent.claim(lease_seconds=100)
        execute(house, "update todos set lease_expires_at = lease_expires_at - interval '60 s' where id = %s", claimed["id"])
        assert seconds_left(house, claimed) < 41
        agent.verb("heartbeat", claimed)
        assert 95 < seconds_left(house, claimed) <= 100

    def test_without_a_duration_it_never_shortens(self, house: House, agent: Agent) -> None:
        """R6: a lease that was stretched stays stretched."""
        agent.push()
        (claimed,) = agent.claim(lease_seconds=10)
        agent.verb("heartbeat", claimed, lease_seconds=1_000)
        agent.verb("heartbeat", claimed)
        assert seconds_left(house, claimed) > 900

    @pytest.mark.parametrize("seconds", [5, 5_000])
    def test_with_a_duration_it_sets_exactly_that(self, house: House, agent: Agent, seconds: int) -> None:
        """R6: shorter or longer, like SQS ChangeMessageVisibility."""
        agent.push()
        (claimed,) = agent.claim(lease_seconds=100)
        agent.verb("heartbeat", claimed, lease_seconds=seconds)
        assert seconds - 4 < seconds_left(house, claimed) <= seconds


class TestComplete:
    """`POST /v1/todos/{id}/complete`."""

    def test_it_ends_the_todo(self, agent: Agent) -> None:
        """Done, with its result; lease fields null, `completed_at` set, the owner kept (Fields after the end)."""
        agent.push(payload=[1])
        (claimed,) = agent.claim(owner="w1")
        reply = agent.verb("complete", claimed, result={"ok": True})
        assert reply.status_code == 200
        assert reply.json().keys() == {"todo"}
        todo = reply.json()["todo"]
        assert (todo["state"], todo["status"], todo["owner"], todo["result"]) == ("done", "done", "w1", {"ok": True})
        assert todo["completed_at"] is not None
        assert [todo[name] for name in (*LEASE_FIELDS, "next_retry_at", "error")] == [None] * 4
        found = agent.get(todo)
        assert (found["result"], found["payload"], found["completed_at"]) == ({"ok": True}, [1], todo["completed_at"])

    def test_without_a_result_it_is_null(self, agent: Agent) -> None:
        """A result is optional."""
        agent.push()
        agent.verb("complete", agent.claim()[0])
        ((listed,),) = [agent.http.get("/v1/todos").json()["todos"]]
        assert listed["result_bytes"] is None
        assert agent.get(listed)["result"] is None

    @pytest.mark.parametrize("verb", FINISHES)
    def test_done_is_final(self, agent: Agent, verb: str) -> None:
        """SPEC-0003 Terminal states are final: every other end is a conflict with the state."""
        agent.push()
        (claimed,) = agent.claim()
        agent.verb("complete", claimed, result=1)
        refused = problem(agent.verb(verb, claimed, lease_token=str(uuid4())), 409, "conflict")
        assert refused["state"] == "done"
        assert "already" not in refused
        assert agent.get(claimed)["result"] == 1

    def test_next_claims_in_the_same_commit(self, agent: Agent) -> None:
        """`next`: the following todo for the same owner; null when there is none."""
        first, second = agent.push(), agent.push(payload={"n": 2})
        (claimed,) = agent.claim(owner="w1")
        assert claimed["id"] == first["id"]
        reply = agent.verb("complete", claimed, result=1, next={"lease_seconds": 60})
        assert reply.status_code == 200
        assert reply.json().keys() == {"todo", "next"}
        assert reply.json()["todo"]["status"] == "done"
        following = reply.json()["next"]
        assert following.keys() == TODO_FIELDS
        assert (following["id"], following["owner"], following["payload"]) == (second["id"], "w1", {"n": 2})
        lasts = datetime.fromisoformat(following["lease_expires_at"]) - datetime.fromisoformat(following["claimed_at"])
        assert abs(lasts - timedelta(seconds=60)) < timedelta(seconds=1)
        last = agent.verb("complete", following, next={})
        assert (last.json()["todo"]["status"], last.json()["next"]) == ("done", None)

    def test_next_is_fenced_by_queue(self, agent: Agent) -> None:
        """`queue` or `queues` as in a claim."""
        agent.push("a")
        agent.push("a")
        third = agent.push("b")
        fourth = agent.push("c")
        (claimed,) = agent.claim(queue="a")
        reply = agent.verb("complete", claimed, next={"queue": "b"})
        assert reply.json()["next"]["id"] == third["id"]
        reply = agent.verb("complete", reply.json()["next"], next={"queues": ["c", "d"]})
        assert reply.json()["next"]["id"] == fourth["id"]
        assert agent.verb("complete", reply.json()["next"], next={"queue": "d"}).json()["next"] is None

    def test_a_refused_complete_claims_nothing(self, agent: Agent) -> None:
        """Without the completion there is no `next`."""
        first, second = agent.push(), agent.push()
        agent.claim()
        problem(agent.verb("complete", first, lease_token=str(uuid4()), next={}), 409, "conflict")
        assert agent.get(second)["status"] == "pending"

    def test_next_of_null_is_no_next(self, agent: Agent) -> None:
        """`next: null` is the same as leaving it out: the reply has no such field."""
        agent.push()
        assert agent.verb("complete", agent.claim()[0], next=None).json().keys() == {"todo"}


class TestFail:
    """`POST /v1/todos/{id}/fail`."""

    def test_below_the_cap_it_parks(self, agent: Agent) -> None:
        """SPEC-0003 Bounded Retries: owner and error kept, lease fields null, a window of 30 s, no end."""
        agent.push()
        (claimed,) = agent.claim(owner="w1")
        reply = agent.verb("fail", claimed, error="it broke")
        assert reply.json().keys() == {"todo"}
        todo = reply.json()["todo"]
        assert (todo["state"], todo["status"], todo["owner"], todo["error"]) == ("failed", "retrying", "w1", "it broke")
        assert [todo[name] for name in (*LEASE_FIELDS, "completed_at")] == [None] * 3
        waits = datetime.fromisoformat(todo["next_retry_at"]) - datetime.fromisoformat(todo["updated_at"])
        assert abs(waits - timedelta(seconds=30)) < timedelta(seconds=1)

    def test_at_the_cap_it_dead_letters(self, agent: Agent) -> None:
        """No window, an end, owner and error kept."""
        agent.push(max_attempts=1)
        todo = agent.verb("fail", agent.claim(owner="w1")[0], error="it broke").json()["todo"]
        assert (todo["state"], todo["status"], todo["owner"], todo["error"]) == ("failed", "dead", "w1", "it broke")
        assert [todo[name] for name in (*LEASE_FIELDS, "next_retry_at")] == [None] * 3
        assert todo["completed_at"] is not None

    def test_without_an_error_it_is_null(self, agent: Agent) -> None:
        """The text is optional."""
        agent.push()
        assert agent.verb("fail", agent.claim()[0]).json()["todo"]["error"] is None


class TestRelease:
    """`POST /v1/todos/{id}/release`."""

    def test_it_goes_back_with_its_attempt(self, agent: Agent) -> None:
        """R7: pending, attempt kept; owner, lease and token cleared; claimable at once."""
        agent.push()
        (claimed,) = agent.claim(owner="w1")
        reply = agent.verb("release", claimed)
        assert reply.json().keys() == {"todo"}
        todo = reply.json()["todo"]
        assert (todo["status"], todo["attempt"]) == ("pending", 1)
        assert [todo[name] for name in ("owner", "claimed_at", "completed_at", *LEASE_FIELDS)] == [None] * 5
        assert agent.claim()[0]["attempt"] == 2
        assert [attempt["outcome"] for attempt in agent.get(todo)["attempts"]] == ["released", None]

    def test_at_the_cap_it_dead_letters(self, agent: Agent) -> None:
        """R7: claim and release cannot loop for ever."""
        agent.push(max_attempts=2)
        for _ in range(2):
            todo = agent.verb("release", agent.claim()[0]).json()["todo"]
        assert (todo["status"], todo["attempt"]) == ("dead", 2)
        assert todo["completed_at"] is not None
        assert agent.claim() == []


class TestARepeatedFinish:
    """R32: the first answer was lost; the caller repeats the call and learns that it is done."""

    @pytest.mark.parametrize("verb", FINISHES)
    def test_by_the_same_token_in_the_same_way_says_already(self, agent: Agent, verb: str) -> None:
        """409 with the state and `"already": true`, also once the todo has gone on."""
        agent.push()
        (claimed,) = agent.claim()
        agent.verb(verb, claimed)
        refused = problem(agent.verb(verb, claimed), 409, "conflict")
        assert (refused["state"], refused["already"]) == (
            {"complete": "done", "fail": "failed", "release": "pending"}[verb],
            True,
        )
        if verb == "release":
            agent.claim(owner="another")
            refused = problem(agent.verb(verb, claimed), 409, "conflict")
            assert (refused["state"], refused["already"]) == ("claimed", True)

    @pytest.mark.parametrize(("first", "second"), [("complete", "fail"), ("fail", "complete"), ("release", "fail")])
    def test_in_another_way_is_a_plain_conflict(self, agent: Agent, first: str, second: str) -> None:
        """`already` means this very end, not any."""
        agent.push()
        (claimed,) = agent.claim()
        agent.verb(first, claimed)
        assert "already" not in problem(agent.verb(second, claimed), 409, "conflict")

    def test_without_the_token_is_a_plain_conflict(self, agent: Agent) -> None:
        """An owner's name proves nothing about which attempt it was."""
        agent.push()
        (claimed,) = agent.claim(owner="w1")
        agent.verb("complete", claimed)
        assert "already" not in problem(agent.verb("complete", claimed["id"], owner="w1"), 409, "conflict")

    def test_with_next_says_already_and_claims_nothing(self, agent: Agent) -> None:
        """A worker that repeats `complete` with `next` claims by itself afterwards."""
        agent.push()
        (claimed,) = agent.claim()
        agent.verb("complete", claimed)
        waiting = agent.push()
        assert problem(agent.verb("complete", claimed, next={}), 409, "conflict")["already"] is True
        assert agent.get(waiting)["status"] == "pending"


class TestBatches:
    """`POST /v1/todos/heartbeat`, `complete`, `fail`, `release`: an outcome for each item, in order."""

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_each_item_has_its_own_outcome(self, house: House, agent: Agent, verb: str) -> None:
        """Moved, conflict, foreign, unknown and malformed ids side by side; the good ones go through."""
        for n in range(4):
            agent.push(title=str(n))
        held = agent.claim(max=3, owner="w1")
        pending = agent.http.get("/v1/todos", params={"status": "pending"}).json()["todos"][0]
        foreign = house.vend().push()
        items = [
            {"id": held[0]["id"], "lease_token": held[0]["lease_token"]},
            {"id": foreign["id"], "owner": "w1"},
            {"id": pending["id"], "owner": "w1"},
            {"id": held[1]["id"], "owner": "w1"},
            {"id": "not-a-uuid"},
            {"id": held[2]["id"]},  # the endpoint's name does not hold it
            {"id": NEVER_MINTED},
        ]
        reply = agent.http.post(f"/v1/todos/{verb}", json={"items": items})
        assert reply.status_code == 200
        assert reply.json().keys() == {"results"}
        results = reply.json()["results"]
        assert len(results) == len(items)
        expected = {"heartbeat": "claimed", "complete": "done", "fail": "retrying", "release": "pending"}[verb]
        for place, todo in ((0, held[0]), (3, held[1])):
            assert results[place].keys() == {"todo"}
            assert (results[place]["todo"]["id"], results[place]["todo"]["status"]) == (todo["id"], expected)
        assert results[1] == results[4] == results[6]
        error(results[1], "not_found")
        assert error(results[2], "conflict")["state"] == "pending"
        assert error(results[5], "conflict")["state"] == "claimed"

    @pytest.mark.parametrize("verb", FINISHES)
    def test_the_same_id_twice_is_done_once(self, agent: Agent, verb: str) -> None:
        """The first counts; the second is what the state then says: here, that it is done already."""
        agent.push()
        (held,) = agent.claim()
        item = {"id": held["id"], "lease_token": held["lease_token"]}
        first, second = agent.http.post(f"/v1/todos/{verb}", json={"items": [item, item]}).json()["results"]
        assert first.keys() == {"todo"}
        assert error(second, "conflict")["already"] is True

    def test_the_same_id_twice_may_count_twice(self, agent: Agent) -> None:
        """Two heartbeats are two heartbeats; the second duration stands."""
        agent.push()
        (held,) = agent.claim()
        items = [{"id": held["id"], "lease_seconds": seconds} for seconds in (1_000, 50)]
        first, second = agent.http.post("/v1/todos/heartbeat", json={"items": items}).json()["results"]
        assert first["todo"]["lease_expires_at"] > second["todo"]["lease_expires_at"]

    def test_each_item_carries_its_own_fields(self, agent: Agent) -> None:
        """`result` and `error` are the item's."""
        for _ in range(4):
            agent.push(max_attempts=1)
        held = agent.claim(max=4)
        items = [{"id": todo["id"], "result": {"n": n}} for n, todo in enumerate(held[:2])]
        agent.http.post("/v1/todos/complete", json={"items": items})
        assert [agent.get(todo)["result"] for todo in held[:2]] == [{"n": 0}, {"n": 1}]
        items = [{"id": todo["id"], "error": f"broke {n}"} for n, todo in enumerate(held[2:])]
        results = agent.http.post("/v1/todos/fail", json={"items": items}).json()["results"]
        assert [result["todo"]["error"] for result in results] == ["broke 0", "broke 1"]

    def test_a_thousand_at_once(self, agent: Agent) -> None:
        """The largest batch of each kind goes through whole."""
        agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "q"} for _ in range(1_000)]})
        held = agent.claim(max=1_000)
        items = [{"id": todo["id"], "lease_token": todo["lease_token"]} for todo in held]
        for verb, status in (("heartbeat", "claimed"), ("complete", "done")):
            results = agent.http.post(f"/v1/todos/{verb}", json={"items": items}).json()["results"]
            assert [result["todo"]["id"] for result in results] == [todo["id"] for todo in held]
            assert {result["todo"]["status"] for result in results} == {status}

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    @pytest.mark.parametrize(
        ("second", "field"),
        [
            ({"owner": ""}, "items[1].owner"),
            ({"lease_token": "x"}, "items[1].lease_token"),
            ({"surprise": 1}, "items[1].surprise"),
            ({"id": 7}, "items[1].id"),
            ({"id": None}, "items[1].id"),
            ({"next": {}}, "items[1].next"),
        ],
    )
    def test_a_malformed_one_is_refused_whole(self, agent: Agent, verb: str, second: dict[str, Any], field: str) -> None:
        """422 with the path, nothing done; `next` is no field of a batch."""
        agent.push()
        (held,) = agent.claim()
        good = {"id": held["id"], "lease_token": held["lease_token"]}
        problem(agent.http.post(f"/v1/todos/{verb}", json={"items": [good, good | second]}), 422, "invalid", field)
        assert agent.get(held)["status"] == "claimed"

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_its_size_is_bounded(self, agent: Agent, verb: str) -> None:
        """1 to 1,000 items (R27)."""
        for count in (0, 1_001):
            body = {"items": [{"id": NEVER_MINTED}] * count}
            problem(agent.http.post(f"/v1/todos/{verb}", json=body), 422, "invalid", "items")
        problem(agent.http.post(f"/v1/todos/{verb}", json={}), 422, "invalid", "items")
        problem(agent.http.post(f"/v1/todos/{verb}"), 400, "invalid")


@pytest.mark.parametrize("cap", [1, 2])
def test_a_todo_is_executed_exactly_as_often_as_it_may_be(house: House, agent: Agent, cap: int) -> None:
    """C49: workers die each time; exactly `cap` executions, then dead; an explicit retry works once more."""
    todo = agent.push(max_attempts=cap)
    for _ in range(2):
        executions = 0
        for _ in range(cap + 2):
            claimed = agent.claim()
            executions += len(claimed)
            if claimed:
                assert claimed[0]["attempt"] == executions
                let_lapse(house, todo)
        assert executions == cap
        execute(house, "update todos set lease_expires_at = lease_expires_at where id = %s", todo["id"])
        agent_sees = agent.get(todo)
        if agent_sees["status"] == "claimed":  # the scan left it to the reaper, which this house has not
            released = agent.verb("release", todo["id"]).json()["todo"]
            assert released["status"] == "dead"
        assert agent.get(todo)["status"] == "dead"
        assert agent.claim() == []
        assert agent.verb("retry", todo).json()["todo"]["attempt"] == 0


def test_the_reaper_dead_letters_at_the_cap(open_house: Opener) -> None:
    """C49: the worker dies at its last attempt; the sweep ends the todo with `lease expired`, and a retry revives it."""
    house = open_house(settings={"queue": {"reap_interval_seconds": 0.1, "retry_interval_seconds": 0.1}})
    agent = house.vend()
    todo = agent.push(max_attempts=1, idempotency_key="k")
    agent.claim(owner="w1")
    let_lapse(house, todo)
    # A waiting claim gets nothing: the sweep comes within its time, and hands nothing out.
    assert agent.claim(wait_seconds=1) == []
    dead = agent.get(todo)
    assert (dead["status"], dead["error"], dead["owner"], dead["attempt"]) == ("dead", "lease expired", "w1", 1)
    assert [attempt["outcome"] for attempt in dead["attempts"]] == ["expired"]
    assert agent.verb("retry", todo).status_code == 200
    (again,) = agent.claim()
    assert (again["id"], again["attempt"]) == (todo["id"], 1)
    assert agent.verb("complete", again).status_code == 200


async def test_64_claimants_on_64_todos_get_64_distinct_ones(house: House) -> None:
    """SPEC-0003 Concurrent claimants get distinct todos, over HTTP, three rounds of it."""
    for _ in range(3):
        agent = house.vend()
        agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "q", "title": str(n)} for n in range(64)]})
        got: list[str] = []

        async def claim(http: httpx.AsyncClient, owner: str, got: list[str] = got) -> None:
            reply = await http.post("/v1/claims", json={"queue": "q", "owner": owner})
            assert reply.status_code == 200
            (todo,) = reply.json()["todos"]
            assert todo["owner"] == owner
            got.append(todo["id"])

        async with many(house, agent) as http, trio.open_nursery() as nursery:
            for n in range(64):
                nursery.start_soon(claim, http, f"worker-{n}")
        assert len(got) == len(set(got)) == 64
        assert agent.claim() == []


async def test_claims_by_id_race_for_one_todo(house: House) -> None:
    """Of 32 who claim the same todo by its id exactly one has it; the others hear of a conflict."""
    agent = house.vend()
    todo = agent.push()
    statuses: list[int] = []

    async def claim(http: httpx.AsyncClient) -> None:
        statuses.append((await http.post(f"/v1/todos/{todo['id']}/claim")).status_code)

    async with many(house, agent) as http, trio.open_nursery() as nursery:
        for _ in range(32):
            nursery.start_soon(claim, http)
    assert sorted(statuses) == [200] + [409] * 31
    assert agent.get(todo)["attempt"] == 1


def test_bodies_of_the_verbs_are_optional_and_strict(agent: Agent) -> None:
    """An empty object does; a list, a string or an unknown field does not."""
    agent.push()
    (claimed,) = agent.claim()
    path = f"/v1/todos/{claimed['id']}/heartbeat"
    assert post(agent.http, path, "{}").status_code == 200
    for text in ("[]", '"x"', "null", "7"):
        problem(post(agent.http, path, text), 422, "invalid", "body")
    problem(post(agent.http, path, '{"ownr":"x"}'), 422, "invalid", "ownr")
