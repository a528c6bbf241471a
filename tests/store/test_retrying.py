"""Explicit retry, and the number of times that a todo is tried. R8; C49."""

from __future__ import annotations

import threading

import pytest

from switchboard.commands import Moved, Outcome, Retry, rings_of
from switchboard.errors import Conflict
from switchboard.store.sweeping import REAP
from tests.store.desk import Desk, open_session
from tests.store.threads import committed, together, until_somebody_waits


@pytest.mark.parametrize("kind", ["dead", "parked"])
def test_a_retry_begins_again(desk: Desk, kind: str) -> None:
    """R8: a retry of a dead letter, or of an open window, resets the attempts and clears all of the last one; it rings."""
    endpoint = desk.endpoint()
    failed = desk.dead(endpoint) if kind == "dead" else desk.parked(endpoint)
    command = Retry(endpoint_id=endpoint, todo_id=failed.id)
    outcome = desk.ask_retry(endpoint, failed.id)
    row = desk.row(failed)
    cleared = ("owner", "claimed_at", "lease_token", "lease_seconds", "lease_expires_at", "next_retry_at", "completed_at")
    assert (row["state"], row["attempt"]) == ("pending", 0)
    assert {row[column] for column in cleared} == {None}
    assert rings_of(command, outcome)
    (again,) = desk.claim(endpoint, "work")
    assert (again.id, again.attempt) == (failed.id, 1)
    assert [a.outcome for a in desk.history(failed)] == ["failed", None]


def test_only_what_failed_is_retried(desk: Desk) -> None:
    """R8: a retry of what is pending, claimed or done is a Conflict that names the state, and changes nothing."""
    endpoint = desk.endpoint()
    for todo in (desk.create(endpoint), desk.claimed(endpoint), desk.done(endpoint)):
        before = desk.row(todo)
        outcome = desk.ask_retry(endpoint, todo.id)
        assert isinstance(outcome, Conflict)
        assert (outcome.state, outcome.todo_id) == (todo.state, None)
        assert desk.row(todo) == before


@pytest.mark.parametrize("twin_is", ["pending", "claimed", "parked"])
def test_a_retry_never_makes_a_second_live_todo_of_one_key(desk: Desk, twin_is: str) -> None:
    """R8: while another live todo holds the key, a retry is a Conflict that names it, and changes nothing."""
    endpoint, elsewhere = desk.endpoint(), desk.endpoint()
    dead = desk.dead(endpoint, idempotency_key="k")
    desk.create(elsewhere, idempotency_key="k")
    make = {"pending": desk.create, "claimed": desk.claimed, "parked": desk.parked}[twin_is]
    twin = make(endpoint, idempotency_key="k")
    before = desk.row(dead)
    outcome = desk.ask_retry(endpoint, dead.id)
    assert isinstance(outcome, Conflict)
    assert (outcome.state, outcome.todo_id) == ("failed", twin.id)
    assert str(twin.id) in outcome.detail
    assert desk.row(dead) == before
    desk.session.execute("update todos set idempotency_key = null where id = %s", [twin.id])
    assert desk.retry(dead).state == "pending"


def test_a_retry_that_meets_a_create_at_work_says_conflict(commons: str) -> None:
    """R8: the twin is inserted but not committed: the retry waits, then names it, and its transaction lives on."""
    with open_session(commons) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        dead = desk.dead(endpoint, idempotency_key="k")

    def create(desk: Desk, barrier: threading.Barrier) -> object:
        def work() -> object:
            twin = desk.create(endpoint, idempotency_key="k")
            barrier.wait()
            until_somebody_waits(desk)
            return twin.id

        return committed(desk.session, work)

    def retry(desk: Desk, barrier: threading.Barrier) -> object:
        def work() -> tuple[Outcome, int]:
            outcome = desk.ask_retry(endpoint, dead.id)
            return outcome, desk.one("select 1")

        barrier.wait()
        outcome, alive = committed(desk.session, work)
        assert isinstance(outcome, Conflict)
        assert alive == 1
        return outcome.todo_id

    twin, named = together(commons, [create, retry])
    assert twin == named


def test_a_revoked_endpoints_todo_is_not_retried(desk: Desk) -> None:
    """R8, R17: nothing returns to the queue of an endpoint that is no more."""
    endpoint = desk.endpoint()
    dead = desk.dead(endpoint)
    desk.revoke(endpoint)
    outcome = desk.ask_retry(endpoint, dead.id)
    assert isinstance(outcome, Conflict)
    assert desk.row(dead)["state"] == "failed"


@pytest.mark.parametrize("ending", ["expire", "fail", "release"])
@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_todo_is_tried_exactly_so_often(desk: Desk, max_attempts: int, ending: str) -> None:
    """C49: with 1 or 2 attempts, however each one ends, a todo is handed out exactly so often, then dead; a retry adds as many.

    The boundary is `attempt = max_attempts`: a lapsed lease there is dead-lettered by the reaper and handed to nobody before.
    """
    endpoint = desk.endpoint()
    todo = desk.create(endpoint, max_attempts=max_attempts, idempotency_key="k")
    for life in (1, 2):
        for attempt in range(1, max_attempts + 1):
            (claimed,) = desk.claim(endpoint, "work")
            assert claimed.attempt == attempt
            if ending == "expire":
                desk.lapse(claimed)
            elif ending == "fail":
                desk.fail(claimed)
                desk.let_window_pass(claimed) if attempt < max_attempts else None
            else:
                desk.release(claimed)
        for _ in range(2):
            desk.clock.seconds += 2
            assert desk.claim(endpoint, "work") == []
            assert desk.claim(endpoint) == []
            assert isinstance(desk.ask_claim(endpoint, todo.id), Conflict)
        if ending == "expire":
            assert desk.now(todo).state == "claimed"
            assert desk.sweep(REAP).dead_lettered == 1
        assert desk.now(todo).status == "dead"
        if life == 1:
            assert isinstance(desk.ask_retry(endpoint, todo.id), Moved)
    assert len(desk.history(todo)) == 2 * max_attempts
