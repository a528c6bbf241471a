"""The holder's verbs: who may use them, what a lease is, and what a repeated finish is told. R4 to R7, R15, R32; C34, C35."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from switchboard.commands import ClaimNext, Complete, Fail, Heartbeat, Moved, Release, Undo, rings_of
from switchboard.errors import Conflict, NotFound
from switchboard.store.sweeping import REAP
from switchboard.todo import Todo
from tests.store.desk import Desk, held_by, ids, moved, owned_by

VERBS = (Heartbeat, Complete, Fail, Release)
ENDED_AS = {Complete: "completed", Fail: "failed", Release: "released"}


def _left(desk: Desk, todo: Todo) -> timedelta:
    """How long its lease still runs, on the database's clock."""
    left = desk.one("select lease_expires_at - clock_timestamp() from todos where id = %s", todo.id)
    assert isinstance(left, timedelta)
    return left


def _about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=2)


@pytest.mark.parametrize("verb", VERBS)
def test_every_claim_has_a_token_of_its_own(desk: Desk, verb: type[Complete]) -> None:
    """R4, C35: the same owner name claims again after its lease lapsed: the first claim's token is good for nothing."""
    endpoint = desk.endpoint()
    first = desk.claimed(endpoint, owner="w1")
    desk.lapse(first)
    (second,) = desk.claim(endpoint, "work", owner="w1")
    assert second.id == first.id
    assert second.lease_token != first.lease_token
    before = desk.row(second)
    outcome = desk.hold_one(verb(**held_by(first), owner="w1"))
    assert isinstance(outcome, Conflict)
    assert (outcome.state, outcome.already) == ("claimed", False)
    assert desk.row(second) == before
    assert moved(desk.hold_one(verb(**held_by(second), owner="w1"))).id == first.id


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_token_the_owner_is_the_guard(desk: Desk, verb: type[Complete]) -> None:
    """R4: a token that is given must match, also where the owner does; one that is not given leaves the guard to the owner."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint, owner="w1")
    for guard in ({"owner": "w1", "lease_token": uuid4()}, {"owner": "w2", "lease_token": todo.lease_token}, {"owner": "w2"}):
        outcome = desk.hold_one(verb(endpoint_id=endpoint, todo_id=todo.id, **guard))
        assert isinstance(outcome, Conflict)
    assert desk.now(todo).state == "claimed"
    assert isinstance(desk.hold_one(verb(**owned_by(todo, "w1"))), Moved)


@pytest.mark.parametrize("verb", VERBS)
def test_a_lapsed_lease_that_nobody_took_over_still_counts(desk: Desk, verb: type[Complete]) -> None:
    """R5: after the lease lapsed, and before anybody reaped or re-claimed it, all the holder's verbs still succeed."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint)
    desk.lapse(todo)
    assert isinstance(desk.hold_one(verb(**held_by(todo))), Moved)


@pytest.mark.parametrize("verb", VERBS)
def test_after_a_reap_the_holder_has_lost_it(desk: Desk, verb: type[Complete]) -> None:
    """R5: once the reaper has returned a lapsed todo, its former holder is told Conflict by every verb."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint, owner="w1")
    desk.lapse(todo)
    assert desk.sweep(REAP).moved == 1
    before = desk.row(todo)
    for guard in (held_by(todo), owned_by(todo, "w1")):
        outcome = desk.hold_one(verb(**guard))
        assert isinstance(outcome, Conflict)
        assert (outcome.state, outcome.already) == ("pending", False)
    assert desk.row(todo) == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_late_holder_cannot_touch_another_ones_claim(desk: Desk, verb: type[Complete]) -> None:
    """C34: A's lease lapses and B claims: A gets Conflict for everything, and B's lease is neither ended nor extended."""
    endpoint = desk.endpoint()
    a = desk.claimed(endpoint, owner="a")
    desk.lapse(a)
    (b,) = desk.claim(endpoint, "work", owner="b", lease_seconds=30)
    before = desk.row(b)
    for guard in (held_by(a), owned_by(a, "a"), {**held_by(a), "owner": "a"}):
        assert isinstance(desk.hold_one(verb(**guard)), Conflict)
    assert desk.row(b) == before
    assert desk.complete(b).state == "done"
    assert [(x.owner, x.outcome) for x in desk.history(b)] == [("a", "expired"), ("b", "completed")]


def test_a_heartbeat_renews_by_the_claims_own_duration(desk: Desk) -> None:
    """R6: without a duration the lease runs on by its own; never shorter than it was."""
    endpoint = desk.endpoint()
    todo = desk.claim_this(desk.create(endpoint), lease_seconds=600)
    desk.lapse(todo)
    beaten = desk.heartbeat(todo)
    assert beaten.lease_expires_at is not None
    assert _left(desk, todo).total_seconds() == _about(600)
    assert (beaten.attempt, beaten.lease_token, beaten.claimed_at) == (todo.attempt, todo.lease_token, todo.claimed_at)
    desk.heartbeat(todo, lease_seconds=7_200)
    longer = desk.heartbeat(todo)
    assert longer.lease_expires_at is not None
    assert _left(desk, todo).total_seconds() == _about(7_200)


@pytest.mark.parametrize("seconds", [1, 30, 86_400])
def test_a_heartbeat_with_a_duration_sets_exactly_that(desk: Desk, seconds: int) -> None:
    """R6: an explicit duration counts from now, shorter or longer, as SQS has it; the claim's own duration stays."""
    endpoint = desk.endpoint()
    todo = desk.claim_this(desk.create(endpoint), lease_seconds=600)
    desk.heartbeat(todo, lease_seconds=seconds)
    assert _left(desk, todo).total_seconds() == _about(seconds)
    assert desk.row(todo)["lease_seconds"] == 600


def test_a_heartbeat_and_a_completion_leave_the_payload_where_it_is(desk: Desk) -> None:
    """Performance, shape 6: verbs that need no payload read none; a completion returns the very result it was given."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint, payload='{"n": 1}')
    beaten = desk.heartbeat(todo)
    assert (beaten.payload, beaten.payload_read, beaten.payload_bytes) == (None, False, 8)
    done = desk.complete(todo, result='{"ok":  true}')
    assert (done.payload, done.result, done.result_bytes) == (None, '{"ok":  true}', 13)
    assert (desk.now(todo).payload, desk.now(todo).result) == ('{"n": 1}', '{"ok":  true}')


def test_a_release_returns_the_todo_and_keeps_the_attempt(desk: Desk) -> None:
    """R7: released below the cap a todo is pending again, nobody's, its attempt counted, and it rings."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint)
    command = Release(**held_by(todo))
    outcome = desk.hold_one(command)
    row = desk.row(todo)
    cleared = ("owner", "lease_token", "lease_seconds", "lease_expires_at", "claimed_at")
    assert row["state"] == "pending"
    assert {row[column] for column in cleared} == {None}
    assert row["attempt"] == 1
    (ring,) = rings_of(command, outcome)
    assert (ring.endpoint_id, ring.queue, ring.todo_id) == (endpoint, "work", todo.id)
    assert desk.claim(endpoint, "work")[0].attempt == 2


def test_claim_and_release_cannot_loop_for_ever(desk: Desk) -> None:
    """R7: the release of the last attempt dead-letters, and does not ring."""
    endpoint = desk.endpoint()
    todo = desk.create(endpoint, max_attempts=2)
    desk.release(desk.claim_this(todo))
    last = desk.claim_this(todo)
    command = Release(**held_by(last))
    outcome = desk.hold_one(command)
    dead = moved(outcome)
    assert (dead.status, dead.error, dead.attempt) == ("dead", "released at the last attempt", 2)
    assert dead.completed_at is not None
    assert not rings_of(command, outcome)
    assert [a.outcome for a in desk.history(todo)] == ["released", "released"]


@pytest.mark.parametrize("verb", [Complete, Fail, Release])
def test_a_repeated_finish_is_told_that_it_is_done_already(desk: Desk, verb: type[Complete]) -> None:
    """R32: who repeats a finish with the same token hears `already`; any other finish, token or owner does not."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint, owner="w1")
    assert isinstance(desk.hold_one(verb(**held_by(todo))), Moved)
    after = desk.row(todo)
    for other in VERBS:
        outcome = desk.hold_one(other(**held_by(todo)))
        assert isinstance(outcome, Conflict)
        assert outcome.already is (other is verb)
    for guard in (owned_by(todo, "w1"), {**held_by(todo), "lease_token": uuid4()}):
        outcome = desk.hold_one(verb(**guard))
        assert isinstance(outcome, Conflict)
        assert outcome.already is False
    assert desk.row(todo) == after
    assert [a.outcome for a in desk.history(todo)] == [ENDED_AS[verb]]


def test_already_is_remembered_through_later_claims(desk: Desk) -> None:
    """R32: the answer stays right when the todo has meanwhile been claimed and finished again by somebody else."""
    endpoint = desk.endpoint()
    first = desk.claimed(endpoint, owner="w1")
    desk.release(first)
    second = desk.claim_this(first, owner="w2")
    released = desk.hold_one(Release(**held_by(first)))
    assert isinstance(released, Conflict)
    assert (released.already, released.state) == (True, "claimed")
    desk.complete(second)
    completed = desk.hold_one(Complete(**held_by(first)))
    assert isinstance(completed, Conflict)
    assert completed.already is False


def test_the_same_todo_twice_in_one_batch_is_taken_in_turn(desk: Desk) -> None:
    """Rule 7 of the house: the second word about a todo meets what the first one left, whatever verbs they are."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint)
    outcomes = desk.hold(Fail(**held_by(todo), error="x"), Complete(**held_by(todo)), Fail(**held_by(todo), error="y"))
    assert [type(outcome) for outcome in outcomes] == [Moved, Conflict, Conflict]
    assert [outcome.already for outcome in outcomes if isinstance(outcome, Conflict)] == [False, True]
    assert desk.now(todo).error == "x"
    beaten = desk.claimed(endpoint)
    outcomes = desk.hold(Heartbeat(**held_by(beaten)), Heartbeat(**held_by(beaten)), Complete(**held_by(beaten)))
    assert [type(outcome) for outcome in outcomes] == [Moved] * 3


def test_what_lies_outside_the_endpoints_queues_is_not_found_and_not_touched(desk: Desk) -> None:
    """R16: a todo in a queue that its endpoint may not use is absent to every verb of the endpoint, with every guard."""
    endpoint = desk.endpoint("mine")
    todo = desk.create(endpoint, "mine")
    claimed = desk.claim_this(todo, owner="w1")
    desk.session.execute("update todos set queue = 'not mine' where id = %s", [todo.id])
    before = desk.row(todo)
    for verb in VERBS:
        for guard in (held_by(claimed), owned_by(claimed, "w1"), owned_by(claimed, None)):
            assert isinstance(desk.hold_one(verb(**guard)), NotFound)
    assert isinstance(desk.undo(claimed), NotFound)
    assert isinstance(desk.ask_claim(endpoint, todo.id), NotFound)
    assert isinstance(desk.ask_retry(endpoint, todo.id), NotFound)
    assert desk.row(todo) == before


def test_an_undone_claim_has_never_been(desk: Desk) -> None:
    """R15: undo returns the todo to pending, takes the attempt back, leaves no history, rings; another token moves nothing."""
    endpoint = desk.endpoint()
    todo = desk.create(endpoint)
    desk.release(desk.claim_this(todo))
    before = desk.row(todo)
    claimed = desk.claim_this(todo)
    stranger = Undo(endpoint_id=endpoint, todo_id=todo.id, lease_token=uuid4())
    assert isinstance(desk.hold_one(stranger), Conflict)
    assert desk.now(todo).lease_token == claimed.lease_token
    command = Undo(endpoint_id=endpoint, todo_id=todo.id, lease_token=claimed.lease_token or uuid4())
    outcome = desk.hold_one(command)
    assert isinstance(outcome, Moved)
    assert rings_of(command, outcome)
    changed = {name for name, value in desk.row(todo).items() if value != before[name]}
    assert changed == {"updated_at"}
    assert [a.outcome for a in desk.history(todo)] == ["released"]
    assert isinstance(desk.hold_one(command), Conflict)


def test_a_completion_claims_the_next_in_the_same_commit(desk: Desk) -> None:
    """SPEC-0003, api.md: `then` claims for whoever completed, and only where the completion succeeded."""
    endpoint = desk.endpoint()
    first, second = desk.create(endpoint), desk.create(endpoint)
    third = desk.create(endpoint, assignee="w1")
    then = ClaimNext(endpoint_id=endpoint, owner="somebody", lease_seconds=60, queues=("work",), limit=5)
    held = desk.claim_this(first, owner="w1")
    outcome = desk.hold_one(Complete(**held_by(held), then=then))
    assert isinstance(outcome, Moved)
    assert outcome.todo.state == "done"
    assert outcome.then is not None
    assert ids(outcome.then.todos) == [second.id, third.id]
    assert {todo.owner for todo in outcome.then.todos} == {"w1"}
    desk.create(endpoint)
    assert isinstance(desk.hold_one(Complete(**held_by(held), then=then)), Conflict)
    assert len(desk.claim(endpoint, "work")) == 1
