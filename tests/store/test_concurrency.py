"""Real threads, barriers and a real database in the place of a race detector: R29, SPEC-0003 Concurrency Safety."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from uuid import UUID

import pytest

from switchboard.commands import Claimed, Complete, Created, CreateTodo, Fail, Heartbeat, Held, Moved, Outcome, Release
from switchboard.errors import Conflict
from switchboard.store import creating
from switchboard.store.sweeping import REAP, REQUEUE, Sweep
from switchboard.todo import Todo
from tests.store.desk import Desk, held_by, ids, open_session
from tests.store.filling import fill_with_work
from tests.store.threads import committed, together

Verb = Heartbeat | Complete | Fail | Release
Work = Callable[[Desk, threading.Barrier], list[UUID]]


def _claimed_all(desk: Desk, endpoint: UUID, todo_ids: Sequence[UUID]) -> dict[UUID, int]:
    """How often each of these was handed out, by its own count and by its history; every one once."""
    rows = desk.rows("select id, attempt, state from todos where endpoint_id = %s", endpoint)
    assert {row["id"] for row in rows} == set(todo_ids)
    return {row["id"]: row["attempt"] for row in rows}


def test_many_claimants_of_every_kind_drain_a_queue_without_meeting(commons: str) -> None:
    """SPEC-0003: claimants of one queue, of several, of any, one by one and by the handful: each todo goes to one of them.

    Nobody goes away empty before the last todo is gone.
    """
    with open_session(commons) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        todo_ids = fill_with_work(session, endpoint, "pending", 150)
        todo_ids += fill_with_work(session, endpoint, "pending", 50, queue="side")
        todo_ids += fill_with_work(session, endpoint, "pending", 20, assignee="ada")

    def drain(owner: str, limit: int, *queues: str) -> Work:
        def work(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
            got: list[UUID] = []
            while todos := committed(desk.session, lambda: desk.claim(endpoint, *queues, owner=owner, limit=limit)):
                got += ids(todos)
            return got

        return work

    crews = [drain("w1", 1, "work"), drain("w2", 7, "work"), drain("w3", 3, "side", "work"), drain("w4", 2)]
    crews += [drain("w5", 5), drain("ada", 1, "work"), drain("ada", 4), drain("w6", 2, "side", "work")]
    got = Counter(todo_id for todos in together(commons, crews) for todo_id in todos)
    assert set(got) == set(todo_ids)
    assert set(got.values()) == {1}
    with open_session(commons) as session:
        assert set(_claimed_all(Desk(session), endpoint, todo_ids).values()) == {1}


def test_claimants_that_all_begin_at_once_each_go_away_with_something(commons: str) -> None:
    """SPEC-0003: as many claimants as todos, half of them assigned, all inside open transactions: nobody gets nothing."""
    workers = 8
    with open_session(commons) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        todos = [desk.create(endpoint, assignee="ada" if n % 2 else None) for n in range(workers)]

    def claim(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
        def work() -> list[UUID]:
            got = ids(desk.claim(endpoint, "work", owner="ada"))
            barrier.wait()
            return got

        return committed(desk.session, work)

    got = [todo_id for todo_ids in together(commons, [claim] * workers) for todo_id in todo_ids]
    assert sorted(got) == sorted(ids(todos))


def test_a_claim_never_waits_behind_a_row_that_somebody_holds(commons: str) -> None:
    """SPEC-0003: claims of the next, and by id, are answered while another transaction holds a lock on the row."""
    with open_session(commons) as one, open_session(commons) as other:
        desk = Desk(one)
        endpoint = desk.endpoint()
        held = [desk.create(endpoint), desk.claimed(endpoint), desk.parked(endpoint)]
        desk.lapse(held[1])
        desk.let_window_pass(held[2])
        other.execute("begin")
        other.execute("select from todos where endpoint_id = %s for update", [endpoint])
        free = desk.create(endpoint)
        one.execute("set lock_timeout = 1")  # whoever waits at all fails
        desk.clock.seconds += 2
        assert ids(desk.claim(endpoint, "work", limit=5)) == [free.id]
        for queues in (("work",), ("work", "side"), ()):
            desk.clock.seconds += 2
            assert desk.claim(endpoint, *queues, limit=5) == []
        outcomes = [desk.ask_claim(endpoint, todo.id) for todo in held]
        assert {type(outcome) for outcome in outcomes} == {Conflict}
        other.execute("rollback")
        assert isinstance(desk.ask_claim(endpoint, held[0].id), Claimed)


@pytest.mark.parametrize("verbs", [(Heartbeat, Heartbeat), (Heartbeat, Complete), (Complete, Release), (Fail, Complete)])
def test_batches_in_opposite_orders_never_deadlock(commons: str, verbs: tuple[type[Verb], type[Verb]]) -> None:
    """Architecture, the ledger: two batches about the same todos in opposite orders wait for each other, never in a ring."""
    rounds = 10
    with open_session(commons) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        fill_with_work(session, endpoint, "pending", 40 * rounds)
        batches = [desk.claim(endpoint, "work", limit=40) for _ in range(rounds)]

    def hold(verb: type[Verb], step: int) -> Callable[[Desk, threading.Barrier], list[list[Outcome]]]:
        def work(desk: Desk, barrier: threading.Barrier) -> list[list[Outcome]]:
            outcomes: list[list[Outcome]] = []
            for todos in batches:
                commands: list[Held] = [verb(**held_by(todo)) for todo in todos[::step]]
                barrier.wait()
                outcomes.append(committed(desk.session, lambda commands=commands: desk.hold(*commands))[::step])  # type: ignore[misc]
            return outcomes

        return work

    first, second = together(commons, [hold(verbs[0], 1), hold(verbs[1], -1)])
    for one, other in zip(first, second, strict=True):
        moved = [(isinstance(a, Moved), isinstance(b, Moved)) for a, b in zip(one, other, strict=True)]
        # whoever came first ended it, and a heartbeat ends nothing
        assert all(a or b for a, b in moved)
        assert verbs[0] is Heartbeat or not any(a and b for a, b in moved)


def test_creates_in_opposite_orders_never_deadlock(commons: str) -> None:
    """R13, shape 4: two batches of the same keys in opposite orders: each key is made once, and nobody waits in a ring."""
    with open_session(commons) as session:
        endpoint = Desk(session).endpoint()

    def create(step: int) -> Callable[[Desk, threading.Barrier], list[Outcome]]:
        def work(desk: Desk, barrier: threading.Barrier) -> list[Outcome]:
            outcomes: list[Outcome] = []
            for round_ in range(10):
                commands = [
                    CreateTodo(endpoint_id=endpoint, queue="work", max_attempts=5, idempotency_key=f"{round_}-{n}")
                    for n in range(40)
                ][::step]
                barrier.wait()
                outcomes += committed(desk.session, lambda commands=commands: creating.create(desk.session, commands))  # type: ignore[misc]
            return outcomes

        return work

    outcomes = [outcome for answers in together(commons, [create(1), create(-1), create(1)]) for outcome in answers]
    made = [outcome for outcome in outcomes if isinstance(outcome, Created)]
    assert len(made) == len(outcomes) == 3 * 400
    assert sum(outcome.created for outcome in made) == 400
    assert len({outcome.todo.id for outcome in made}) == 400


@pytest.mark.parametrize(("kind", "what"), [(REAP, "lapsed"), (REQUEUE, "due")], ids=["reap", "requeue"])
def test_a_sweep_that_runs_twice_at_once_moves_each_row_once(database: str, kind: Sweep, what: str) -> None:
    """Architecture: two processes on one database: every overdue todo is moved, and rings, exactly once."""
    with open_session(database) as session:
        todo_ids = fill_with_work(session, Desk(session).endpoint(), what, 1_800)

    def sweep(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
        rung: list[UUID] = []
        while (swept := committed(desk.session, lambda: desk.sweep(kind))).moved:
            rung += [ring.todo_id for ring in swept.rings]
        return rung

    rung = Counter(todo_id for todos in together(database, [sweep] * 3) for todo_id in todos)
    assert set(rung) == set(todo_ids)
    assert set(rung.values()) == {1}
    with open_session(database) as session:
        assert {row["state"] for row in Desk(session).rows("select state from todos")} == {"pending"}
        ended = Desk(session).rows("select todo_id, outcome from attempts")
    assert sorted(row["todo_id"] for row in ended) == (sorted(todo_ids) if what == "lapsed" else [])


def test_reaper_claimant_and_late_holder_race_for_lapsed_todos(database: str) -> None:
    """R5, R9: each lapsed todo goes to exactly one of the holder who still finishes, the claimant, and the reaper.

    What the holder finished is done; what another one claimed has its second attempt; the rest is pending. Every one has
    exactly one end of its first claim in the history, and it is the right one.
    """
    with open_session(database) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        fill_with_work(session, endpoint, "pending", 300)
        todos = desk.claim(endpoint, "work", owner="late", limit=300)
        desk.lapse(*todos)

    def finish(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
        done: list[UUID] = []
        for start in range(0, 300, 10):
            commands: list[Held] = [Complete(**held_by(todo)) for todo in todos[start : start + 10]]
            outcomes = committed(desk.session, lambda commands=commands: desk.hold(*commands))  # type: ignore[misc]
            assert {type(outcome) for outcome in outcomes} <= {Moved, Conflict}
            done += [outcome.todo.id for outcome in outcomes if isinstance(outcome, Moved)]
        return done

    def take(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
        got: list[UUID] = []
        for _ in range(20):
            desk.clock.seconds += 2
            got += ids(committed(desk.session, lambda: desk.claim(endpoint, "work", owner="quick", limit=5)))
        return got

    def reap(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
        rung: list[UUID] = []
        # a few at a time, so that the others have a chance; the whole sweep is proven elsewhere
        for _ in range(5):
            rung += [ring.todo_id for ring in committed(desk.session, lambda: desk.sweep(REAP)).rings]
        return rung

    done, taken, reaped = together(database, [finish, take, reap])
    with open_session(database) as session:
        desk = Desk(session)
        rows = {row["id"]: row for row in desk.rows("select id, state, owner, attempt from todos")}
        ends = _ends(desk)
    assert {id_ for id_, row in rows.items() if row["state"] == "done"} == set(done)
    assert {id_ for id_, row in rows.items() if row["owner"] == "quick"} == set(taken)
    assert len(taken) == len(set(taken))
    assert not set(done) & (set(taken) | set(reaped))
    for id_, row in rows.items():
        expected = {"done": ["completed"], "claimed": ["expired"], "pending": ["expired"]}
        if row["owner"] != "late" or row["state"] == "done":
            assert ends[id_] == expected[row["state"]], row
        assert row["attempt"] == (2 if id_ in taken else 1)


def _ends(desk: Desk) -> dict[UUID, list[str]]:
    rows = desk.rows("select todo_id, array_agg(outcome order by ended_at) as outcomes from attempts group by todo_id")
    return {row["todo_id"]: row["outcomes"] for row in rows}


def test_scheduler_claimant_and_retry_race_for_due_todos(database: str) -> None:
    """R8, R9: a parked todo whose window elapsed comes back once: requeued, claimed, or retried, with its key still its own."""
    with open_session(database) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        todo_ids = fill_with_work(session, endpoint, "due", 200)

    def requeue(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
        return [ring.todo_id for _ in range(3) for ring in committed(desk.session, lambda: desk.sweep(REQUEUE)).rings]

    def take(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
        got: list[UUID] = []
        for _ in range(20):
            desk.clock.seconds += 2
            got += ids(committed(desk.session, lambda: desk.claim(endpoint, "work", owner="quick", limit=4)))
        return got

    def retry(desk: Desk, barrier: threading.Barrier) -> list[UUID]:
        retried: list[UUID] = []
        for todo_id in todo_ids[::7]:
            outcome = committed(desk.session, lambda todo_id=todo_id: desk.ask_retry(endpoint, todo_id))  # type: ignore[misc]
            retried += [outcome.todo.id] if isinstance(outcome, Moved) else []
        return retried

    requeued, taken, retried = together(database, [requeue, take, retry])
    assert len(set(taken)) == len(taken)
    assert not set(requeued) & set(retried)
    with open_session(database) as session:
        rows = Desk(session).rows("select id, state, owner, attempt from todos")
    assert {row["state"] for row in rows} <= {"pending", "claimed"}
    assert {row["id"] for row in rows if row["state"] == "claimed"} == set(taken)
    for row in rows:
        assert row["attempt"] == (0 if row["id"] in retried else 1) + (row["id"] in taken)


def test_heartbeats_keep_a_todo_from_claimants_for_as_long_as_they_come(commons: str) -> None:
    """C50, SPEC-0003 Visibility: a lease that is renewed is never taken over, whoever looks, however often."""
    with open_session(commons) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        todo = desk.claimed(endpoint, owner="ada")

    def beat(desk: Desk, barrier: threading.Barrier) -> list[Todo]:
        return [committed(desk.session, lambda: desk.heartbeat(todo)) for _ in range(100)]

    def look(desk: Desk, barrier: threading.Barrier) -> list[Todo]:
        got: list[Todo] = []
        for _ in range(50):
            desk.clock.seconds += 2
            got += committed(desk.session, lambda: desk.claim(endpoint, "work", owner="grace"))
            assert isinstance(committed(desk.session, lambda: desk.ask_claim(endpoint, todo.id)), Conflict)
        return got

    beats, *looks = together(commons, [beat, look, look])
    assert looks == [[], []]
    leases = [beaten.lease_expires_at for beaten in beats if beaten.lease_expires_at is not None]
    assert len(leases) == 100
    assert all(one <= other for one, other in pairwise(leases))
