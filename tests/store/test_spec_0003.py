"""SPEC-0003, scenario by scenario: each test is named after one, and the table below misses none.

Two of them speak of the doorbell. They are proven here where a ring is made and where it is heard; over HTTP elsewhere.
"""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from switchboard.commands import Claimed, Complete, Created, Fail, Heartbeat, Held, Release, ring_for
from switchboard.errors import Conflict, NotFound, QueueError
from switchboard.store import attending, reading
from switchboard.store.reading import TodoFilter
from switchboard.store.sweeping import REAP, REQUEUE
from switchboard.todo import Ring, Todo
from switchboard.waiting_room import Waiter, WaitingRoom
from tests.store.desk import Desk, held_by, ids, open_session, owned_by
from tests.store.filling import fill_with_history
from tests.store.plans import Explainer
from tests.store.threads import committed, together

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT.parent / "shared" / "spec" / "SPEC-0003-todo-work-queue.txt"

SCENARIOS = {
    "Only defined transitions are honored": "test_only_defined_transitions_are_honored",
    "Terminal states are final": "test_terminal_states_are_final",
    "Concurrent claimants get distinct todos": "test_concurrent_claimants_get_distinct_todos",
    "Direct assignment is respected": "test_direct_assignment_is_respected",
    "Claimed todo is invisible to other consumers": "test_claimed_todo_is_invisible_to_other_consumers",
    "Only the lease owner may complete or fail": "test_only_the_lease_owner_may_complete_or_fail",
    "Crashed worker's todo is re-claimable": "test_crashed_workers_todo_is_re_claimable",
    "Repeated expiry dead-letters at the cap": "test_repeated_expiry_dead_letters_at_the_cap",
    "Fail below cap schedules a backoff retry, at cap dead-letters": (
        "test_fail_below_cap_schedules_a_backoff_retry_at_cap_dead_letters"
    ),
    "Elapsed backoff re-queues": "test_elapsed_backoff_re_queues",
    "Duplicate delivery collapses to one todo": "test_duplicate_delivery_collapses_to_one_todo",
    "A terminal todo does not block a new one": "test_a_terminal_todo_does_not_block_a_new_one",
    "Redelivery during a backoff window does not duplicate": "test_redelivery_during_a_backoff_window_does_not_duplicate",
    "Graceful shutdown drains cleanly": "tests/house/test_drain.py::test_graceful_shutdown_drains_cleanly",
    "Zero-row update is classified, not swallowed": "test_zero_row_update_is_classified_not_swallowed",
    "Cross-endpoint queue collision is isolated": "test_cross_endpoint_queue_collision_is_isolated",
    "Doorbell never crosses endpoints": "test_doorbell_never_crosses_endpoints",
    "A foreign todo id is indistinguishable from a nonexistent one": (
        "test_a_foreign_todo_id_is_indistinguishable_from_a_nonexistent_one"
    ),
    "Background sweep spans tenants without a scope": "test_background_sweep_spans_tenants_without_a_scope",
    "Same delivery routed to two endpoints yields two todos": "test_same_delivery_routed_to_two_endpoints_yields_two_todos",
    "Redelivery to one target dedups only within that target": "test_redelivery_to_one_target_dedups_only_within_that_target",
    "Claim never scans terminal rows": "test_claim_never_scans_terminal_rows",
}
"""Every scenario of the specification, and the test that keeps it: here, unless a file is named."""


def test_every_scenario_has_its_test() -> None:
    """The table names a test for each scenario of the specification, by the scenario's own words, and each test exists."""
    if SPEC.exists():
        assert set(re.findall(r"^Scenario: (.+?)\s*$", SPEC.read_text(), re.MULTILINE)) == set(SCENARIOS)
    assert len(set(SCENARIOS.values())) == len(SCENARIOS) == 22
    for title, test in SCENARIOS.items():
        file, _, name = test.rpartition("::")
        assert name == "test_" + re.sub(r"[^a-z0-9]+", "_", title.lower().replace("'", "")).strip("_")
        if file:
            assert f"def {name}(" in (ROOT / file).read_text()
        else:
            assert callable(globals()[name])


# Todo Lifecycle State Machine


def test_only_defined_transitions_are_honored(desk: Desk) -> None:
    """SPEC-0003: completing a todo that was never claimed is a Conflict, and it stays pending.

    So is every other holder's verb in every state but claimed, and a retry of anything but failed.
    """
    endpoint = desk.endpoint()
    states = {
        "pending": desk.create(endpoint),
        "done": desk.done(endpoint),
        "retrying": desk.parked(endpoint),
        "dead": desk.dead(endpoint),
        "claimed": desk.claimed(endpoint),
    }
    before = {status: desk.row(todo) for status, todo in states.items()}
    for status in ("pending", "done", "retrying", "dead"):
        todo = states[status]
        for verb in (Heartbeat, Complete, Fail, Release):
            for guard in (owned_by(todo, "worker"), owned_by(todo, None), {**owned_by(todo, None), "lease_token": uuid4()}):
                outcome = desk.hold_one(verb(**guard))
                assert isinstance(outcome, Conflict)
                assert outcome.state == todo.state
    for status in ("pending", "done", "claimed"):
        outcome = desk.ask_retry(endpoint, states[status].id)
        assert isinstance(outcome, Conflict)
        assert outcome.state == states[status].state
    assert {status: desk.row(todo) for status, todo in states.items()} == before


def test_terminal_states_are_final(desk: Desk) -> None:
    """SPEC-0003: what is done, or failed without a window, is never claimed; only a retry of the dead one brings it back."""
    endpoint = desk.endpoint()
    done, dead = desk.done(endpoint), desk.dead(endpoint)
    for queues in (("work",), ("work", "other"), ()):
        desk.clock.seconds += 2
        assert desk.claim(endpoint, *queues, limit=10) == []
        assert desk.claim(endpoint, *queues, limit=10) == []
    for todo in (done, dead):
        assert isinstance(desk.ask_claim(endpoint, todo.id), Conflict)
    for kind in (REAP, REQUEUE):
        assert desk.sweep(kind).moved == 0
    assert isinstance(desk.ask_retry(endpoint, done.id), Conflict)
    assert desk.retry(dead).state == "pending"
    assert ids(desk.claim(endpoint, "work", limit=10)) == [dead.id]


# Atomic Claim with FOR UPDATE SKIP LOCKED


def test_concurrent_claimants_get_distinct_todos(commons: str) -> None:
    """SPEC-0003: N workers on N pending todos of one queue hold one each, and none waits for another.

    Every worker claims inside a transaction that it keeps open until all have claimed: one that had to wait for a row, or
    for a global lock, would never let them meet.
    """
    workers = 12
    with open_session(commons) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        todos = [desk.create(endpoint) for _ in range(workers)]

    def claim(desk: Desk, barrier: threading.Barrier) -> list[Todo]:
        def work() -> list[Todo]:
            claimed = desk.claim(endpoint, "work", owner=f"worker-{threading.get_ident()}")
            barrier.wait()
            return claimed

        return committed(desk.session, work)

    claimed = [todo for todos in together(commons, [claim] * workers) for todo in todos]
    assert sorted(ids(claimed)) == sorted(ids(todos))
    assert {todo.attempt for todo in claimed} == {1}
    assert len({todo.lease_token for todo in claimed}) == workers


def test_direct_assignment_is_respected(desk: Desk) -> None:
    """SPEC-0003: a todo with an assignee is claimed by nobody else, in any way; by its assignee, in every way."""
    endpoint = desk.endpoint()
    for queues in (("work",), ("work", "other"), ()):
        assigned = desk.create(endpoint, assignee="ada")
        assert desk.claim(endpoint, *queues, owner="grace", limit=10) == []
        refusal = desk.ask_claim(endpoint, assigned.id, owner="grace")
        assert isinstance(refusal, Conflict)
        assert desk.now(assigned).state == "pending"
        assert ids(desk.claim(endpoint, *queues, owner="ada", limit=10)) == [assigned.id]
    by_name = desk.create(endpoint, assignee="ada")
    assert desk.claim_this(by_name, owner="ada").owner == "ada"
    # the assignment outlives the claim: a lapsed lease and an elapsed window are the assignee's too
    lapsed, due = by_name, desk.fail(desk.claim_this(desk.create(endpoint, assignee="ada"), owner="ada"))
    desk.lapse(lapsed)
    desk.let_window_pass(due)
    desk.clock.seconds += 2
    assert desk.claim(endpoint, owner="grace", limit=10) == []
    for todo in (lapsed, due):
        assert isinstance(desk.ask_claim(endpoint, todo.id, owner="grace"), Conflict)
    assert sorted(ids(desk.claim(endpoint, owner="ada", limit=10))) == sorted([lapsed.id, due.id])


# Visibility Window, Lease, and Heartbeat


def test_claimed_todo_is_invisible_to_other_consumers(desk: Desk) -> None:
    """SPEC-0003: while its lease lives no other claim gets a todo; when it is released, or the lease lapses, one does."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint, owner="ada")
    lease = todo.lease_expires_at
    assert lease is not None
    assert todo.claimed_at is not None
    assert timedelta(seconds=59) < lease - todo.claimed_at < timedelta(seconds=61)
    for owner in ("grace", "ada"):
        desk.clock.seconds += 2
        assert desk.claim(endpoint, "work", owner=owner) == []
        assert desk.claim(endpoint, owner=owner) == []
        assert isinstance(desk.ask_claim(endpoint, todo.id, owner=owner), Conflict)
    desk.release(todo)
    (again,) = desk.claim(endpoint, "work", owner="grace")
    assert again.id == todo.id
    assert desk.claim(endpoint, "work", owner="ada") == []
    desk.lapse(again)
    assert ids(desk.claim(endpoint, "work", owner="ada")) == [todo.id]


def test_only_the_lease_owner_may_complete_or_fail(desk: Desk) -> None:
    """SPEC-0003: complete and fail, and heartbeat and release, of another's claim are Conflicts and change nothing."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint, owner="ada")
    before = desk.row(todo)
    for verb in (Complete, Fail, Heartbeat, Release):
        outcome = desk.hold_one(verb(**owned_by(todo, "grace")))
        assert isinstance(outcome, Conflict)
        assert (outcome.state, outcome.already) == ("claimed", False)
    assert desk.row(todo) == before
    assert desk.now(todo).state == "claimed"
    (outcome,) = desk.hold(Complete(**owned_by(todo, "ada"), result='{"ok": true}'))
    assert not isinstance(outcome, QueueError)
    assert desk.now(todo).state == "done"


# Lease-Expiry Requeue and Reaper


def test_crashed_workers_todo_is_re_claimable(desk: Desk) -> None:
    """SPEC-0003: after the lease of a worker that died, the reaper returns its todo, rings, and another worker has it.

    A claim finds it as well when no reaper has run.
    """
    endpoint = desk.endpoint()
    reaped, met = desk.claimed(endpoint, owner="ada"), desk.claimed(endpoint, owner="ada")
    assert desk.sweep(REAP).moved == 0
    desk.lapse(reaped)
    swept = desk.sweep(REAP)
    assert (swept.moved, swept.dead_lettered, swept.failed) == (1, 0, ())
    assert [ring.todo_id for ring in swept.rings] == [reaped.id]
    row = desk.row(reaped)
    assert (row["state"], row["owner"], row["lease_expires_at"], row["attempt"]) == ("pending", None, None, 1)
    (again,) = desk.claim(endpoint, "work", owner="grace")
    assert (again.id, again.attempt) == (reaped.id, 2)

    desk.lapse(met)
    (again,) = desk.claim(endpoint, "work", owner="grace")
    assert (again.id, again.attempt) == (met.id, 2)
    assert [(a.attempt, a.owner, a.outcome) for a in desk.history(met)] == [(1, "ada", "expired"), (2, "grace", None)]


def test_repeated_expiry_dead_letters_at_the_cap(desk: Desk) -> None:
    """SPEC-0003: a todo that was claimed and expired `max_attempts` times is dead-lettered, not requeued for ever."""
    endpoint = desk.endpoint()
    todo = desk.create(endpoint, max_attempts=3)
    for attempt in (1, 2, 3):
        (claimed,) = desk.claim(endpoint, "work")
        assert claimed.attempt == attempt
        desk.lapse(claimed)
        swept = desk.sweep(REAP)
        assert (swept.moved, swept.dead_lettered) == (1, int(attempt == 3))
        assert [ring.todo_id for ring in swept.rings] == ([todo.id] if attempt < 3 else [])
    dead = desk.now(todo)
    assert (dead.status, dead.error, dead.attempt) == ("dead", "lease expired", 3)
    assert dead.completed_at is not None
    assert desk.claim(endpoint, "work") == []
    assert [a.outcome for a in desk.history(todo)] == ["expired"] * 3


# Bounded Retries via max_attempts


@pytest.mark.parametrize(("attempt", "backoff_seconds"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 900), (99, 900)])
def test_the_backoff_doubles_from_thirty_seconds_to_fifteen_minutes(desk: Desk, attempt: int, backoff_seconds: int) -> None:
    """SPEC-0003 Bounded Retries: attempt 1 waits 30 s, each further one twice as long, from the sixth on 15 minutes."""
    endpoint = desk.endpoint()
    todo = desk.create(endpoint, max_attempts=100)
    desk.session.execute("update todos set attempt = %s where id = %s", [attempt - 1, todo.id])
    failed = desk.fail(desk.claim_this(todo))
    assert failed.attempt == attempt
    assert failed.next_retry_at is not None
    window = failed.next_retry_at - failed.updated_at
    assert abs(window - timedelta(seconds=backoff_seconds)) < timedelta(seconds=1)


def test_fail_below_cap_schedules_a_backoff_retry_at_cap_dead_letters(desk: Desk) -> None:
    """SPEC-0003: a failure below the cap parks the todo, unclaimable until its window elapses; one at the cap ends it."""
    endpoint = desk.endpoint()
    todo = desk.create(endpoint, max_attempts=2)
    parked = desk.fail(desk.claim_this(todo), error="first")
    assert (parked.status, parked.lease_expires_at, parked.error) == ("retrying", None, "first")
    assert parked.next_retry_at is not None
    assert parked.completed_at is None
    for queues in (("work",), ("work", "other"), ()):
        desk.clock.seconds += 2
        assert desk.claim(endpoint, *queues) == []
    assert isinstance(desk.ask_claim(endpoint, todo.id), Conflict)
    assert desk.sweep(REQUEUE).moved == 0

    desk.let_window_pass(todo)
    dead = desk.fail(desk.claim_this(todo), error="second")
    assert (dead.status, dead.next_retry_at, dead.lease_expires_at, dead.error) == ("dead", None, None, "second")
    assert dead.completed_at is not None
    assert [(a.outcome, a.error) for a in desk.history(todo)] == [("failed", "first"), ("failed", "second")]


def test_elapsed_backoff_re_queues(desk: Desk) -> None:
    """SPEC-0003: after the window the scheduler returns a todo to pending, cleared; a claim before that takes it directly."""
    endpoint = desk.endpoint()
    swept_todo, met = desk.parked(endpoint), desk.parked(endpoint)
    desk.let_window_pass(swept_todo)
    swept = desk.sweep(REQUEUE)
    assert (swept.moved, [ring.todo_id for ring in swept.rings]) == (1, [swept_todo.id])
    row = desk.row(swept_todo)
    assert (row["state"], row["owner"], row["lease_expires_at"], row["next_retry_at"]) == ("pending", None, None, None)
    assert row["attempt"] == 1

    desk.let_window_pass(met)
    taken = desk.claim(endpoint, "work", limit=10)
    assert sorted(ids(taken)) == sorted([swept_todo.id, met.id])
    assert {(todo.attempt, todo.next_retry_at) for todo in taken} == {(2, None)}


# Idempotent Enqueue and Dedup


def test_duplicate_delivery_collapses_to_one_todo(desk: Desk) -> None:
    """SPEC-0003: while the first todo is pending, claimed or parked, the same key makes no second one and returns the first."""
    endpoint = desk.endpoint()
    pending = desk.create(endpoint, idempotency_key="pending", payload='{"n": 1}')
    claimed = desk.claimed(endpoint, idempotency_key="claimed")
    parked = desk.parked(endpoint, idempotency_key="parked")
    for todo in (pending, claimed, parked):
        twin = desk.ask_create(endpoint, idempotency_key=todo.idempotency_key, payload='{"n": 2}')
        assert isinstance(twin, Created)
        assert not twin.created
        assert (twin.todo.id, twin.todo.status, twin.todo.payload) == (todo.id, todo.status, todo.payload)
    assert desk.one("select count(*) from todos where endpoint_id = %s", endpoint) == 3
    # without a key nothing collapses
    assert desk.create(endpoint).id != desk.create(endpoint).id


def test_a_terminal_todo_does_not_block_a_new_one(desk: Desk) -> None:
    """SPEC-0003: a key that only a done or a dead-lettered todo holds is free."""
    endpoint = desk.endpoint()
    for old in (desk.done(endpoint, idempotency_key="k-done"), desk.dead(endpoint, idempotency_key="k-dead")):
        fresh = desk.create(endpoint, idempotency_key=old.idempotency_key)
        assert fresh.id != old.id
        assert fresh.state == "pending"
        assert desk.now(old).status == old.status


def test_redelivery_during_a_backoff_window_does_not_duplicate(desk: Desk) -> None:
    """SPEC-0003: a parked todo is its key's live one, and each way back from the window works without a second row."""
    endpoint = desk.endpoint()
    for way in ("scheduler", "due claim", "retry"):
        parked = desk.parked(endpoint, idempotency_key=way)
        twin = desk.ask_create(endpoint, idempotency_key=way)
        assert isinstance(twin, Created)
        assert (twin.created, twin.todo.id, twin.todo.status) == (False, parked.id, "retrying")
        if way == "retry":
            assert desk.retry(parked).state == "pending"
        else:
            desk.let_window_pass(parked)
            if way == "scheduler":
                assert desk.sweep(REQUEUE).moved == 1
            else:
                assert desk.claim_this(parked).attempt == 2
        assert desk.one("select count(*) from todos where idempotency_key = %s and endpoint_id = %s", way, endpoint) == 1


# Error Handling Standards


def test_zero_row_update_is_classified_not_swallowed(desk: Desk) -> None:
    """SPEC-0003: a verb that changes no row says whether the todo is absent (NotFound) or not in that state (Conflict)."""
    endpoint = desk.endpoint()
    done = desk.done(endpoint)
    absent: dict[str, Any] = {"endpoint_id": endpoint, "todo_id": uuid4(), "owner": "worker"}
    present = owned_by(done, "worker")
    for verb in (Complete, Fail, Heartbeat, Release):
        assert isinstance(desk.hold_one(verb(**absent)), NotFound)
        assert isinstance(desk.hold_one(verb(**present)), Conflict)
    assert isinstance(desk.ask_claim(endpoint, absent["todo_id"]), NotFound)
    assert isinstance(desk.ask_claim(endpoint, done.id), Conflict)
    assert isinstance(desk.ask_retry(endpoint, absent["todo_id"]), NotFound)
    assert isinstance(desk.ask_retry(endpoint, done.id), Conflict)
    # in one batch each command is told its own
    live = desk.claimed(endpoint)
    outcomes = desk.hold(Complete(**absent), Complete(**held_by(live)), Complete(**present))
    assert [type(outcome).__name__ for outcome in outcomes] == ["NotFound", "Moved", "Conflict"]


# Endpoint Ownership


def test_cross_endpoint_queue_collision_is_isolated(desk: Desk) -> None:
    """SPEC-0003: of two endpoints on the queue "reviews", B never lists, gets, counts, claims or hears A's todo."""
    a, b = desk.endpoint("reviews"), desk.endpoint("reviews")
    todo = desk.create(a, "reviews", idempotency_key="delivery", assignee=None)
    assert ids(reading.list_todos(desk.session, b, ("reviews",), TodoFilter())) == []
    assert ids(reading.list_todos(desk.session, a, ("reviews",), TodoFilter())) == [todo.id]
    assert reading.find(desk.session, b, todo.id) is None
    assert reading.count_queues(desk.session, b, None) == []
    assert attending.already_waiting(desk.session, b, None, "worker", 10) == []
    for queues in (("reviews",), ("reviews", "other"), ()):
        assert desk.claim(b, *queues) == []
    assert isinstance(desk.ask_claim(b, todo.id), NotFound)
    desk.lapse(desk.claim_this(todo))
    desk.clock.seconds += 2
    assert desk.claim(b, "reviews") == []
    assert _hears(ring_for(todo), a) == [a]
    assert _hears(ring_for(todo), a, b) == [a]


def test_doorbell_never_crosses_endpoints(desk: Desk) -> None:
    """SPEC-0003: whatever makes A's todo ready, the ring names A, and whoever waits at B on the same queue sleeps on."""
    a, b = desk.endpoint(), desk.endpoint()
    lapsed, due = desk.claimed(a), desk.parked(a)
    desk.lapse(lapsed)
    desk.let_window_pass(due)
    rings = [
        ring_for(desk.create(a)),
        *desk.sweep(REAP).rings,
        *desk.sweep(REQUEUE).rings,
        ring_for(desk.retry(desk.dead(a))),
        ring_for(desk.release(desk.claimed(a))),
    ]
    assert len(rings) == 5
    for ring in rings:
        assert ring.endpoint_id == a
        assert _hears(ring, b, a) == [a]
        assert _hears(ring, b) == []


def _hears(ring: Ring, *endpoints: object) -> list[object]:
    """Which of these endpoints' waiters, on the same queue and each there before the next, this ring wakes."""
    room = WaitingRoom()
    waiters = [
        Waiter(endpoint_id=endpoint, credential_sha256=b"", queues=frozenset(queues), owner="worker")  # type: ignore[arg-type]
        for endpoint in endpoints
        for queues in ((ring.queue,),)
    ]
    for waiter in waiters:
        room.enter(waiter)
    for _ in waiters:
        room.ring(ring)
    return [waiter.endpoint_id for waiter in waiters if waiter.bell.is_set()]


def test_a_foreign_todo_id_is_indistinguishable_from_a_nonexistent_one(desk: Desk) -> None:
    """SPEC-0003: for B, A's todo in any state and an id that was never minted give the same answer to every verb."""
    a, b = desk.endpoint(), desk.endpoint()
    foreign = [desk.create(a), desk.claimed(a), desk.parked(a), desk.dead(a), desk.done(a)]
    before = [desk.row(todo) for todo in foreign]
    for todo_id, token in [*((todo.id, todo.lease_token) for todo in foreign), (uuid4(), uuid4())]:
        guards: list[dict[str, object]] = [{"owner": "worker"}, {}, {"lease_token": token}]
        held: list[Held] = [
            verb(endpoint_id=b, todo_id=todo_id, **guard)  # type: ignore[arg-type]
            for verb in (Complete, Fail, Heartbeat, Release)
            for guard in guards
        ]
        outcomes = [*desk.hold(*held), desk.ask_claim(b, todo_id), desk.ask_retry(b, todo_id)]
        assert {type(outcome) for outcome in outcomes} == {NotFound}
        assert {str(outcome) for outcome in outcomes} == {"There is no such todo."}
        assert reading.find(desk.session, b, todo_id) is None
    assert [desk.row(todo) for todo in foreign] == before


def test_background_sweep_spans_tenants_without_a_scope(desk: Desk) -> None:
    """SPEC-0003: one sweep moves every endpoint's lapsed and due todos, and each ring names the endpoint of its row."""
    endpoints = [desk.endpoint() for _ in range(3)]
    lapsed = {desk.claimed(endpoint).id: endpoint for endpoint in endpoints}
    due = {desk.parked(endpoint).id: endpoint for endpoint in endpoints}
    for todos, column in ((lapsed, "lease_expires_at"), (due, "next_retry_at")):
        desk.session.execute(
            f"update todos set {column} = clock_timestamp() - interval '1 second' where id = any (%s)".encode(), [list(todos)]
        )
    for kind, todos in ((REAP, lapsed), (REQUEUE, due)):
        swept = desk.sweep(kind)
        assert swept.moved == 3
        assert {ring.todo_id: ring.endpoint_id for ring in swept.rings} == todos


# Per-Endpoint Idempotency and Dedup


def test_same_delivery_routed_to_two_endpoints_yields_two_todos(desk: Desk) -> None:
    """SPEC-0003: one key at two endpoints is two todos, each deduplicated by itself."""
    a, b = desk.endpoint(), desk.endpoint()
    todos = {endpoint: desk.create(endpoint, idempotency_key="delivery-1") for endpoint in (a, b)}
    assert todos[a].id != todos[b].id
    for endpoint, todo in todos.items():
        twin = desk.ask_create(endpoint, idempotency_key="delivery-1")
        assert isinstance(twin, Created)
        assert (twin.created, twin.todo.id, twin.todo.endpoint_id) == (False, todo.id, endpoint)
    desk.complete(desk.claim_this(todos[a]))
    assert desk.create(a, idempotency_key="delivery-1").id != todos[a].id
    twin = desk.ask_create(b, idempotency_key="delivery-1")
    assert isinstance(twin, Created)
    assert not twin.created


def test_redelivery_to_one_target_dedups_only_within_that_target(desk: Desk) -> None:
    """SPEC-0003: the same delivery twice to A and B leaves one todo at each, two in all and not four."""
    a, b = desk.endpoint(), desk.endpoint()
    first = [desk.create(endpoint, idempotency_key="delivery-2").id for endpoint in (a, b)]
    second = [desk.ask_create(endpoint, idempotency_key="delivery-2") for endpoint in (a, b)]
    assert [outcome.todo.id for outcome in second if isinstance(outcome, Created) and not outcome.created] == first
    assert desk.one("select count(*) from todos where idempotency_key = 'delivery-2' and endpoint_id in (%s, %s)", a, b) == 2


# Database Operation Standards


def test_claim_never_scans_terminal_rows(database: str) -> None:
    """SPEC-0003, C53: with many done and dead todos and 5 pending ones, a claim reads the pending index and those alone.

    `test_plans.py` says the same of every statement, under every kind of statistics and plan.
    """
    with open_session(database) as session:
        desk = Desk(session)
        session.execute("alter table todos set (autovacuum_enabled = off)")  # nobody has counted anything yet
        endpoint = desk.endpoint()
        fill_with_history(session, endpoint, rows=20_000)
        pending = [desk.create(endpoint) for _ in range(5)]
        with Explainer(session) as explainer:
            assert ids(desk.claim(endpoint, "work", limit=3)) == ids(pending[:3])
            assert isinstance(desk.ask_claim(endpoint, pending[3].id), Claimed)
    probes = explainer.named("claims/lock_pending_in_queue")
    assert {scan.index for probe in probes for scan in probe.of_todos if scan.rows_read} == {"todos_pool_queue"}
    for statement in explainer.statements:
        assert not any(scan.reads_all for scan in statement.of_todos), statement
        assert statement.rows_of_todos_read <= 6, statement
        assert statement.buffers <= (100 if statement.writes else 20), statement
