"""Claim: in order, exactly as many as asked, past whatever others hold. R4, R9, R11, R12, R27."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import pytest

from switchboard.commands import Claimed, ClaimNext, ClaimOne, CreateTodo
from switchboard.errors import Conflict
from switchboard.store import claiming
from switchboard.store.overdue_turns import OverdueTurns
from switchboard.todo import CLAIM_ANSWER_PAYLOAD_BYTES_MAX, Todo
from tests.store.desk import Clock, Desk, ids, open_session
from tests.store.filling import fill_with_work

SHAPES = {"one queue": ("work",), "several queues": ("work", "side", "nothing"), "any queue": ()}

shapes = pytest.mark.parametrize("queues", SHAPES.values(), ids=SHAPES)


def _pending_first(desk: Desk, endpoint: object, *queues: str) -> None:
    """Uses up the turn in which overdue todos go first."""
    desk.turns.overdue_first((endpoint, tuple(sorted(set(queues)))))


@shapes
def test_pending_todos_go_in_strict_order_whoever_they_are_for(desk: Desk, queues: tuple[str, ...]) -> None:
    """R9: pool rows and rows assigned to the claimer merge into one order of `created_at, id`; nobody else's is among them."""
    endpoint = desk.endpoint()
    pattern = [None, "ada", None, "grace", "ada", "ada", None, None, "ada", "grace", None, "ada"]
    side = "side" if len(queues) != 1 else "work"
    made = [
        desk.create(endpoint, side if place % 3 == 1 else "work", assignee=assignee) for place, assignee in enumerate(pattern)
    ]
    made += desk.create_many(
        [
            CreateTodo(endpoint_id=endpoint, queue=side if place % 2 else "work", max_attempts=5, assignee=assignee)
            for place, assignee in enumerate(pattern)
        ]
    )
    due_to_ada = [todo.id for todo in made if todo.assignee != "grace"]
    _pending_first(desk, endpoint, *queues)
    claimed: list[object] = []
    for limit in (1, 2, 1, 3, 5, 100):
        claimed += ids(desk.claim(endpoint, *queues, owner="ada", limit=limit))
    assert claimed == due_to_ada
    assert ids(desk.claim(endpoint, *queues, owner="grace", limit=100)) == [t.id for t in made if t.assignee == "grace"]


@shapes
def test_what_is_not_wanted_is_not_taken(desk: Desk, queues: tuple[str, ...]) -> None:
    """SPEC-0003 Atomic Claim: a claim over some queues takes nothing of the others, in whatever state it waits."""
    endpoint = desk.endpoint()
    others = [
        desk.create(endpoint, "elsewhere"),
        desk.create(endpoint, "elsewhere", assignee="ada"),
        desk.claimed(endpoint, "elsewhere"),
        desk.parked(endpoint, "elsewhere"),
    ]
    desk.lapse(others[2])
    desk.let_window_pass(others[3])
    for _ in range(2):
        desk.clock.seconds += 2
        assert sorted(ids(desk.claim(endpoint, *queues, owner="ada", limit=10))) == (sorted(ids(others)) if not queues else [])
        if not queues:
            return


@shapes
def test_overdue_todos_fill_what_pending_ones_leave_short(desk: Desk, queues: tuple[str, ...]) -> None:
    """R9: pending first, then due retries, then lapsed leases, each longest overdue first; no more than asked."""
    endpoint = desk.endpoint()
    lapsed = [desk.claimed(endpoint) for _ in range(3)]
    due = [desk.parked(endpoint) for _ in range(3)]
    pending = [desk.create(endpoint) for _ in range(2)]
    for age, todo in enumerate(lapsed):
        desk.session.execute(
            "update todos set lease_expires_at = clock_timestamp() - make_interval(secs => %s) where id = %s",
            [9 - age, todo.id],
        )
    for age, todo in enumerate(due):
        desk.session.execute(
            "update todos set next_retry_at = clock_timestamp() - make_interval(secs => %s) where id = %s", [9 - age, todo.id]
        )
    _pending_first(desk, endpoint, *queues)
    assert ids(desk.claim(endpoint, *queues, limit=6)) == ids([*pending, *due, lapsed[0]])
    assert ids(desk.claim(endpoint, *queues, limit=6)) == ids(lapsed[1:])
    assert desk.claim(endpoint, *queues, limit=6) == []


@shapes
def test_once_a_second_overdue_todos_go_first(desk: Desk, queues: tuple[str, ...]) -> None:
    """R9: behind any backlog, each second one claim of a scope looks at due and lapsed todos before it looks at pending."""
    endpoint, other = desk.endpoint(), desk.endpoint()
    overdue = [desk.claimed(endpoint), desk.claimed(endpoint), desk.parked(endpoint)]
    backlog = [desk.create(endpoint) for _ in range(10)]
    desk.lapse(*overdue[:2])
    desk.let_window_pass(overdue[2])
    got = [ids(desk.claim(endpoint, *queues))[0] for _ in range(3)]
    assert got == ids([overdue[2], backlog[0], backlog[1]])
    desk.clock.seconds += 0.9
    assert ids(desk.claim(endpoint, *queues)) == [backlog[2].id]
    assert desk.claim(other, *queues) == []  # another endpoint's turn is its own
    desk.clock.seconds += 0.2
    assert ids(desk.claim(endpoint, *queues, limit=2)) == ids(overdue[:2])
    assert ids(desk.claim(endpoint, *queues)) == [backlog[3].id]


def test_turns_are_remembered_for_a_bounded_number_of_scopes() -> None:
    """R9, rule 9 of style: the oldest scope is forgotten, and then only gets its turn early."""
    clock = Clock()
    turns = OverdueTurns(clock)
    assert [turns.overdue_first(scope) for scope in range(10_001)] == [True] * 10_001
    assert turns.overdue_first(10_000) is False
    assert turns.overdue_first(0) is True
    assert len(turns._last) == 10_000


def test_a_lapsed_lease_at_the_cap_is_handed_to_nobody(desk: Desk) -> None:
    """R9: it is the reaper's, by every way of claiming, also when nothing else is there."""
    endpoint = desk.endpoint()
    last = desk.claimed(endpoint, max_attempts=1)
    desk.lapse(last)
    for queues in SHAPES.values():
        for _ in range(2):
            assert desk.claim(endpoint, *queues) == []
    assert isinstance(desk.ask_claim(endpoint, last.id), Conflict)


@shapes
def test_an_overdue_todo_that_may_not_be_had_hides_none_that_may(desk: Desk, queues: tuple[str, ...]) -> None:
    """R9: before the one overdue todo that a claim may have stand those of another assignee, and one at its cap."""
    endpoint = desk.endpoint()
    at_cap, assigned, free = (
        desk.claimed(endpoint, max_attempts=1),
        desk.create(endpoint, assignee="ada"),
        desk.claimed(endpoint),
    )
    desk.claim_this(assigned, owner="ada")
    for todo in (at_cap, assigned, free):
        desk.lapse(todo)
    assert ids(desk.claim(endpoint, *queues)) == [free.id]
    parked, due = desk.fail(desk.claim_this(desk.create(endpoint, assignee="ada"), owner="ada")), desk.parked(endpoint)
    for todo in (parked, due):
        desk.let_window_pass(todo)
    desk.clock.seconds += 2
    assert ids(desk.claim(endpoint, *queues)) == [due.id]


def test_claims_of_one_batch_share_the_work_in_order(desk: Desk) -> None:
    """Rule 7 of the house: claims of one batch are dealt rows in their order; none gets another's, none more than asked."""
    endpoint, other = desk.endpoint(), desk.endpoint()
    made = [desk.create(endpoint) for _ in range(6)]
    foreign = desk.create(other)
    mine = desk.create(endpoint, assignee="ada")
    wanted = [(endpoint, "w1", 2), (other, "w2", 5), (endpoint, "w3", 3), (endpoint, "ada", 2), (endpoint, "w4", 5)]
    commands = [
        ClaimNext(endpoint_id=e, owner=owner, lease_seconds=60, queues=("work",), limit=limit) for e, owner, limit in wanted
    ]
    outcomes = claiming.claim(desk.session, commands, desk.turns)
    dealt = [ids(outcome.todos) for outcome in outcomes if isinstance(outcome, Claimed)]
    assert dealt[1] == [foreign.id]
    assert [len(got) for got in dealt] == [2, 1, 3, 1, 1]
    assert sorted(todo_id for place in (0, 2, 3, 4) for todo_id in dealt[place]) == sorted(ids([*made, mine]))
    for (_, owner, _), outcome in zip(wanted, outcomes, strict=True):
        assert isinstance(outcome, Claimed)
        assert {todo.owner for todo in outcome.todos} <= {owner}
    tokens = [todo.lease_token for outcome in outcomes if isinstance(outcome, Claimed) for todo in outcome.todos]
    assert len(set(tokens)) == len(tokens) == 8


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_claims_of_one_batch_over_overlapping_queues_never_meet(desk: Desk, order: tuple[int, ...]) -> None:
    """SPEC-0003 Atomic Claim: one queue, two, any, and an assignee's, all in one batch: as many todos as claims, all distinct.

    The rows that the first of them locked are not hidden from the second by that lock: both are in one transaction.
    """
    endpoint = desk.endpoint()
    made = [desk.create(endpoint, assignee="ada"), *(desk.create(endpoint) for _ in range(4))]
    wanted = [("w1", ("work",)), ("w2", ("side", "work")), ("w3", ()), ("ada", ("work",))]
    commands = [
        ClaimNext(endpoint_id=endpoint, owner=wanted[place][0], lease_seconds=60, queues=wanted[place][1]) for place in order
    ]
    outcomes = claiming.claim(desk.session, commands, desk.turns)
    got = [ids(outcome.todos) for outcome in outcomes if isinstance(outcome, Claimed)]
    assert [len(todo_ids) for todo_ids in got] == [1] * 4
    assert len({todo_id for todo_ids in got for todo_id in todo_ids} & set(ids(made))) == 4
    assert desk.one("select count(*) from todos where endpoint_id = %s and state = 'claimed'", endpoint) == 4


def test_the_same_todo_named_twice_in_a_batch_goes_to_the_first(desk: Desk) -> None:
    """SPEC-0003 Atomic Claim: one batch, one todo, two claims by id, and a claim of the next: one of them holds it."""
    endpoint = desk.endpoint()
    todo = desk.create(endpoint)
    by_id = [ClaimOne(endpoint_id=endpoint, todo_id=todo.id, owner=owner, lease_seconds=60) for owner in ("w1", "w2")]
    following = ClaimNext(endpoint_id=endpoint, owner="w3", lease_seconds=60, queues=("work",))
    first, second, third = claiming.claim(desk.session, [*by_id, following], desk.turns)
    assert isinstance(first, Claimed)
    assert (first.todos[0].owner, first.todos[0].lease_token) == ("w1", by_id[0].lease_token)
    assert isinstance(second, Conflict)
    assert isinstance(third, Claimed)
    assert third.todos == ()


def test_a_claims_answer_stops_at_its_bound_of_payload(desk: Desk) -> None:
    """R27: an answer carries at most 16 MiB of payload, but one todo at least; what it leaves stays pending."""
    endpoint = desk.endpoint()
    made = [desk.create(endpoint) for _ in range(4)]
    # the size is what counts, so the row says it without holding it
    desk.session.execute(
        "update todos set payload_bytes = %s where endpoint_id = %s", [CLAIM_ANSWER_PAYLOAD_BYTES_MAX // 2, endpoint]
    )
    _pending_first(desk, endpoint, "work")
    assert ids(desk.claim(endpoint, "work", limit=4)) == ids(made[:2])
    desk.session.execute(
        "update todos set payload_bytes = %s where endpoint_id = %s", [CLAIM_ANSWER_PAYLOAD_BYTES_MAX + 1, endpoint]
    )
    assert ids(desk.claim(endpoint, "work", limit=4)) == [made[2].id]
    assert desk.now(made[3]).state == "pending"


SWITCHES = ("seqscan", "indexscan", "bitmapscan", "nestloop", "hashjoin", "mergejoin", "sort")


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_exactly_as_many_as_asked_under_every_plan(desk: Desk, plans: str) -> None:
    """R12: with the planner's switches in all their combinations, a claim of n takes n and locks no more, in order."""
    endpoint = desk.endpoint()
    fill_with_work(desk.session, endpoint, "pending", 8)
    fill_with_work(desk.session, endpoint, "pending", 4, queue="side")
    fill_with_work(desk.session, endpoint, "pending", 6, assignee="ada")
    fill_with_work(desk.session, endpoint, "due", 5)
    fill_with_work(desk.session, endpoint, "lapsed", 5)
    desk.session.execute(f"set local plan_cache_mode = {plans}".encode())
    for setting in product(("on", "off"), repeat=len(SWITCHES)):
        for switch, value in zip(SWITCHES, setting, strict=True):
            desk.session.execute(f"set local enable_{switch} = {value}".encode())
        desk.session.execute("discard plans")
        for queues in SHAPES.values():
            with _taken_back(desk):
                desk.turns = OverdueTurns(Clock())
                overdue = desk.claim(endpoint, *queues, limit=7, owner="ada")
                assert [todo.attempt for todo in overdue] == [2] * 7, setting
                pending = desk.claim(endpoint, *queues, limit=9, owner="ada")
                assert len(pending) == 9, setting
                places = [(todo.created_at, todo.id) for todo in pending]
                assert places == sorted(places), setting
                assert {todo.attempt for todo in pending} == {1}, setting
                assert desk.one("select count(*) from todos where endpoint_id = %s and owner = 'ada'", endpoint) == 16


@contextmanager
def _taken_back(desk: Desk) -> Iterator[None]:
    desk.session.execute("savepoint before")
    yield
    desk.session.execute("rollback to before")


@shapes
@pytest.mark.parametrize("held", ["own, oldest", "pool, oldest"])
def test_a_claim_steps_over_what_another_is_taking_and_finds_the_rest(commons: str, queues: tuple[str, ...], held: str) -> None:
    """SPEC-0003: while a claim under way holds the oldest todo, another one gets the next, assigned or not, and not nothing.

    A look at the heads of both kinds that counts on a row which it then cannot lock would go away empty.
    """
    with open_session(commons) as one, open_session(commons) as other:
        desk, rival = Desk(one), Desk(other)
        endpoint = desk.endpoint()
        assignees = ["ada", None] if held == "own, oldest" else [None, "ada"]
        first, second = [desk.create(endpoint, assignee=assignee) for assignee in assignees]
        other.execute("begin")
        assert ids(rival.claim(endpoint, *queues, owner="ada")) == [first.id]
        assert ids(desk.claim(endpoint, *queues, owner="ada")) == [second.id]
        other.execute("rollback")


@shapes
def test_a_claim_gets_all_that_nobody_holds(commons: str, queues: tuple[str, ...]) -> None:
    """SPEC-0003: with every other todo locked by somebody, a claim for all gets exactly the others, and does not wait."""
    with open_session(commons) as one, open_session(commons) as other:
        desk = Desk(one)
        endpoint = desk.endpoint()
        made = [
            desk.create(endpoint, "side" if n % 3 == 0 and len(queues) != 1 else "work", assignee="ada" if n % 4 < 2 else None)
            for n in range(24)
        ]
        held = made[::2] if not queues else made[:12]
        other.execute("begin")
        other.execute("select from todos where id = any (%s) for update", [ids(held)])
        one.execute("set lock_timeout = 1")
        free = [todo.id for todo in made if todo not in held]
        _pending_first(desk, endpoint, *queues)
        claimed: list[Todo] = []
        for limit in (5, 2, 20):
            claimed += desk.claim(endpoint, *queues, owner="ada", limit=limit)
        assert sorted(ids(claimed)) == sorted(free)
        other.execute("rollback")
