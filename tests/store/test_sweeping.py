"""The sweeps: bounded, stopped by no bad row, safe beside everybody else. R10, R17; C40."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

import psycopg
import pytest

from switchboard.store import sweeping
from switchboard.store.sweeping import REAP, REQUEUE, SWEEP_ROWS_MAX, Sweep, Swept
from switchboard.sweeper import sweep_until_done
from switchboard.todo import Ring, Todo
from tests.store.desk import Desk, ids, open_session
from tests.store.filling import fill_with_history, fill_with_work
from tests.store.plans import Explainer

KINDS = {"reap": (REAP, "lapsed"), "requeue": (REQUEUE, "due")}

kinds = pytest.mark.parametrize(("kind", "what"), KINDS.values(), ids=KINDS)


def _overdue(desk: Desk, what: str, count: int) -> list[UUID]:
    """Todos of one endpoint that the sweep must move, longest overdue first."""
    return fill_with_work(desk.session, desk.endpoint(), what, count)


def _raise_for(desk: Desk, todo_ids: Sequence[UUID], sqlstate: str) -> None:
    """No update of these rows succeeds from here on."""
    named = ", ".join(f"'{todo_id}'" for todo_id in todo_ids)
    desk.session.execute(
        f"""
        create function refuse() returns trigger language plpgsql as $$
        begin raise exception 'this row is bad' using errcode = '{sqlstate}'; end $$;
        create trigger refuse before update on todos for each row when (old.id in ({named})) execute function refuse()
        """.encode(),
        prepare=False,
    )


async def _run(desk: Desk, kind: Sweep) -> tuple[int, list[Ring], list[Swept]]:
    """A whole sweep, as the house runs it: how many moved, what rang, and the batches."""
    batches: list[Swept] = []
    rings: list[Ring] = []

    async def batch(bad: Sequence[UUID]) -> Swept:
        batches.append(desk.sweep(kind, bad))
        return batches[-1]

    moved = await sweep_until_done("test", batch, rings.append)
    return moved, rings, batches


@kinds
@pytest.mark.parametrize("sqlstate", ["23514", "22003", "54000", "P0001", "XX001"])
async def test_one_bad_row_never_stops_the_others(desk: Desk, kind: Sweep, what: str, sqlstate: str) -> None:
    """R10, C40: of five overdue todos the middle one cannot be moved, whatever the server says of it: the others move.

    The bad one is named with its reason, and is tried again in the next sweep.
    """
    todos = _overdue(desk, what, 5)
    _raise_for(desk, [todos[2]], sqlstate)
    for expected in (4, 0):
        moved, rings, batches = await _run(desk, kind)
        assert moved == expected
        assert len(rings) == expected
        assert [failed for swept in batches for failed in swept.failed] == [(todos[2], "this row is bad")]
    states = desk.rows("select state from todos where id = any (%s)", [id_ for id_ in todos if id_ != todos[2]])
    assert {row["state"] for row in states} == {"pending"}


async def test_a_row_that_breaks_a_constraint_never_stops_the_others(desk: Desk) -> None:
    """R10, C40: a claim whose history is there already, as only psql could write it, is the one that is left behind."""
    todos = _overdue(desk, "lapsed", 5)
    desk.session.execute(
        "insert into attempts (endpoint_id, todo_id, lease_token, attempt, owner, claimed_at, ended_at, outcome)"
        " select endpoint_id, id, lease_token, 1, owner, claimed_at, claimed_at, 'expired' from todos where id = %s",
        [todos[0]],
    )
    moved, _, batches = await _run(desk, REAP)
    assert moved == 4
    ((bad, reason),) = batches[0].failed
    assert bad == todos[0]
    assert "attempts_pkey" in reason


@pytest.mark.parametrize("sqlstate", ["57014", "53100", "40P01", "55P03"])
def test_an_outage_is_no_bad_row(desk: Desk, sqlstate: str) -> None:
    """R10, R23: what blames no row (a full disk, a time-out, a deadlock) ends the sweep; it is not taken apart."""
    todos = _overdue(desk, "lapsed", 3)
    _raise_for(desk, todos[:1], sqlstate)
    with pytest.raises(psycopg.Error, match="this row is bad"), desk.session.transaction():
        desk.sweep(REAP)
    assert desk.one("select count(*) from todos where id = any (%s) and state = 'claimed'", todos) == 3


@kinds
async def test_many_overdue_todos_move_in_bounded_batches(desk: Desk, kind: Sweep, what: str) -> None:
    """C40: more than one batch can hold is moved in several, longest overdue first, with a ring for each."""
    todos = _overdue(desk, what, 2 * SWEEP_ROWS_MAX + 100)
    first = desk.sweep(kind)
    assert (first.moved, first.full, len(first.rings)) == (SWEEP_ROWS_MAX, True, SWEEP_ROWS_MAX)
    assert {ring.todo_id for ring in first.rings} == set(todos[:SWEEP_ROWS_MAX])
    moved, rings, batches = await _run(desk, kind)
    assert moved == SWEEP_ROWS_MAX + 100
    assert [swept.moved for swept in batches] == [SWEEP_ROWS_MAX, 100]
    assert {ring.todo_id for ring in rings} == set(todos[SWEEP_ROWS_MAX:])


@kinds
def test_taking_a_batch_apart_costs_no_more_than_its_rows(desk: Desk, kind: Sweep, what: str) -> None:
    """C40: with a bad row among very many, each of a batch's rows is tried alone without a look at all the others.

    A statement that sought its one row among all that are overdue would read them all, for each row of the batch.
    """
    endpoint = desk.endpoint()
    fill_with_history(desk.session, endpoint, 2_000)
    todos = fill_with_work(desk.session, endpoint, what, 5_000)
    _raise_for(desk, todos[100:101], "23514")
    with Explainer(desk.session) as explainer:
        swept = desk.sweep(kind)
    assert (swept.moved, len(swept.failed)) == (SWEEP_ROWS_MAX - 1, 1)
    alone = [statement.rows_of_todos_read for statement in explainer.statements]
    assert len(alone) > SWEEP_ROWS_MAX - 1
    assert sum(alone) <= 12 * SWEEP_ROWS_MAX


@kinds
def test_a_sweep_steps_over_what_somebody_holds(database: str, kind: Sweep, what: str) -> None:
    """R10: a row that another transaction has locked is left for the next sweep; the sweep does not wait for it."""
    with open_session(database) as one, open_session(database) as other:
        desk = Desk(one)
        todos = _overdue(desk, what, 5)
        other.execute("begin")
        other.execute("select from todos where id = %s for update", [todos[1]])
        one.execute("set lock_timeout = 1")
        assert desk.sweep(kind).moved == 4
        assert desk.sweep(kind).moved == 0
        other.execute("rollback")
        assert desk.sweep(kind).moved == 1


def test_a_reap_writes_the_history_and_keeps_the_error(desk: Desk) -> None:
    """SPEC-0003 Lease-Expiry: each reaped claim ends in the history as expired, with who held it and since when."""
    endpoint = desk.endpoint()
    todo = desk.create(endpoint, max_attempts=3)
    desk.fail(desk.claim_this(todo), error="first")
    desk.let_window_pass(todo)
    claimed = desk.claim_this(todo, owner="ada")
    desk.lapse(claimed)
    assert desk.sweep(REAP).moved == 1
    assert desk.now(todo).error == "first"
    last = desk.history(todo)[-1]
    assert (last.attempt, last.owner, last.outcome, last.error) == (2, "ada", "expired", "lease expired")
    assert last.claimed_at == claimed.claimed_at
    assert last.ended_at is not None


# What a revoked endpoint leaves behind


def _drain(desk: Desk, endpoint: UUID) -> list[Swept]:
    swept = [sweeping.sweep_revoked(desk.session, endpoint, ())]
    while swept[-1].full:
        swept.append(sweeping.sweep_revoked(desk.session, endpoint, ()))
    return swept


def _age_revoke(desk: Desk, endpoint: UUID) -> None:
    desk.session.execute("update endpoints set revoked_at = revoked_at - interval '2 minutes' where id = %s", [endpoint])


def _open_todos(desk: Desk, endpoint: UUID) -> list[Todo]:
    return [desk.create(endpoint), desk.create(endpoint, assignee="ada"), desk.claimed(endpoint), desk.parked(endpoint)]


def test_a_revoked_endpoints_open_todos_are_dead_lettered_with_the_reason(desk: Desk) -> None:
    """R17: pending, claimed and parked become dead, the claim under way ends in the history; nothing rings.

    What had ended before, and what belongs to anybody else, stays as it was.
    """
    endpoint, other = desk.endpoint(), desk.endpoint()
    open_todos = _open_todos(desk, endpoint)
    settled = [desk.done(endpoint), desk.dead(endpoint), *_open_todos(desk, other)]
    before = [desk.row(todo) for todo in settled]
    (none,) = _drain(desk, endpoint)
    assert none.moved == 0  # not revoked: not swept
    desk.revoke(endpoint)
    (swept,) = _drain(desk, endpoint)
    assert (swept.moved, swept.dead_lettered, swept.rings) == (4, 4, ())
    for todo in open_todos:
        row = desk.row(todo)
        assert (row["state"], row["error"], row["next_retry_at"]) == ("failed", "endpoint revoked", None)
        assert row["completed_at"] is not None
    assert [(a.outcome, a.error) for a in desk.history(open_todos[2])] == [("revoked", "endpoint revoked")]
    assert [desk.row(todo) for todo in settled] == before


def test_a_large_endpoint_is_swept_in_batches_and_again_for_stragglers(desk: Desk) -> None:
    """R17: batches are bounded; a todo whose create was under way at the revoke is found by a later sweep.

    The books close only once nothing is open and every transaction that began before the revoke has ended.
    """
    endpoint = desk.endpoint()
    fill_with_work(desk.session, endpoint, "pending", SWEEP_ROWS_MAX + 50)
    desk.revoke(endpoint)
    assert [swept.moved for swept in _drain(desk, endpoint)] == [SWEEP_ROWS_MAX, 50]
    assert endpoint in sweeping.draining_endpoints(desk.session)
    fill_with_work(desk.session, endpoint, "claimed", 1)
    assert [swept.moved for swept in _drain(desk, endpoint)] == [1]
    assert endpoint in sweeping.draining_endpoints(desk.session)
    _age_revoke(desk, endpoint)
    assert [swept.moved for swept in _drain(desk, endpoint)] == [0]
    assert endpoint not in sweeping.draining_endpoints(desk.session)


def test_one_bad_row_of_a_revoked_endpoint_stops_neither_the_others_nor_other_endpoints(desk: Desk) -> None:
    """R10, R17: what cannot be dead-lettered is named and left open, and the books stay open with it."""
    endpoint, other = desk.endpoint(), desk.endpoint()
    todos = _open_todos(desk, endpoint)
    desk.revoke(endpoint)
    _raise_for(desk, [todos[1].id], "P0001")
    _age_revoke(desk, endpoint)
    for expected in (3, 0):
        (swept,) = _drain(desk, endpoint)
        assert swept.moved == expected
        assert swept.failed == ((todos[1].id, "this row is bad"),)
    assert endpoint in sweeping.draining_endpoints(desk.session)
    desk.create(other)
    desk.revoke(other)
    assert [swept.moved for swept in _drain(desk, other)] == [1]


def test_the_books_stay_open_while_somebody_holds_a_row(database: str) -> None:
    """R17: a row that was locked during the sweep is no reason to believe that nothing is left."""
    with open_session(database) as one, open_session(database) as other:
        desk = Desk(one)
        endpoint = desk.endpoint()
        todos = _open_todos(desk, endpoint)
        desk.revoke(endpoint)
        _age_revoke(desk, endpoint)
        other.execute("begin")
        other.execute("select from todos where id = %s for update", [todos[0].id])
        assert [swept.moved for swept in _drain(desk, endpoint)] == [3]
        assert endpoint in sweeping.draining_endpoints(one)
        other.execute("rollback")
        assert [swept.moved for swept in _drain(desk, endpoint)] == [1]
        assert endpoint not in sweeping.draining_endpoints(one)


def test_a_revoked_endpoint_gets_nothing_more(desk: Desk) -> None:
    """R17: no create and no retry brings anything back to a revoked endpoint; its name and nothing else may be used again."""
    endpoint = desk.endpoint()
    dead = desk.dead(endpoint)
    desk.revoke(endpoint)
    assert type(desk.ask_create(endpoint)).__name__ == "Unauthorized"
    assert type(desk.ask_retry(endpoint, dead.id)).__name__ == "Conflict"
    assert desk.one("select count(*) from todos where endpoint_id = %s", endpoint) == 1


@pytest.mark.parametrize("make", [lambda desk, e: desk.create(e), lambda desk, e: desk.claimed(e)], ids=["pending", "claimed"])
def test_nothing_is_swept_before_its_time(desk: Desk, make: Callable[[Desk, UUID], Todo]) -> None:
    """SPEC-0003: a lease that lives, a window that is open and a todo that waits are left alone by every sweep."""
    endpoint = desk.endpoint()
    todos = [make(desk, endpoint), desk.parked(endpoint), desk.dead(endpoint), desk.done(endpoint)]
    before = [desk.row(todo) for todo in todos]
    assert [desk.sweep(kind).moved for kind in (REAP, REQUEUE)] == [0, 0]
    assert [desk.row(todo) for todo in todos] == before
    assert len(set(ids(todos))) == 4
    assert uuid4() not in ids(todos)
