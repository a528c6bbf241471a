"""Create: one live todo for each key of an endpoint, however often and however concurrently it is asked. R1, R2, R13, R14."""

from __future__ import annotations

import re
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from switchboard.commands import Created, CreateTodo, Outcome
from switchboard.database.queries import SQL_DIRECTORY
from switchboard.errors import Unauthorized
from switchboard.store import creating
from switchboard.todo import NOWHERE, Todo
from tests.store.desk import Desk, ids, open_session
from tests.store.threads import committed, together, until_somebody_waits

RACE_SECONDS = 2.0


def _new(endpoint: UUID, **fields: Any) -> CreateTodo:
    return CreateTodo(endpoint_id=endpoint, queue="work", max_attempts=5, **fields)


def test_the_key_belongs_to_the_endpoint_and_not_to_the_queue(desk: Desk) -> None:
    """R1: the same key on another queue of the endpoint collapses, and what is returned shows its real queue."""
    endpoint = desk.endpoint()
    first = desk.create(endpoint, "one", idempotency_key="k")
    twin = desk.ask_create(endpoint, "two", idempotency_key="k")
    assert isinstance(twin, Created)
    assert (twin.created, twin.todo.id, twin.todo.queue) == (False, first.id, "one")


def _live_texts() -> dict[str, str]:
    """Every place in the code that spells out what LIVE means, with the alias taken off."""
    queries = SQL_DIRECTORY / "queries" / "todos"
    conflict = r"on conflict \(endpoint_id, idempotency_key\)\s+where (.+?)\s+do nothing"
    places = {
        "on conflict": (queries / "create.sql", conflict),
        "on conflict of an event's todo": (SQL_DIRECTORY / "queries" / "events" / "ingest.sql", conflict),
        "live_twins": (queries / "live_twins.sql", r"and (t\.idempotency_key is not null.+?)\s+limit 1"),
        "retry": (queries / "retry.sql", r"and (other\.idempotency_key is not null\s.+?)\s+and other\.id <> t\.id"),
        "twin_of": (queries / "twin_of.sql", r"and (other\.idempotency_key is not null\s.+?)\s+and other\.id <> t\.id"),
    }
    return {name: _said(path, pattern) for name, (path, pattern) in places.items()}


def _said(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text().strip(), re.DOTALL)
    assert found is not None, path
    return " ".join(re.sub(r"\b(t|other)\.", "", found[1]).split())


def test_the_words_for_live_are_the_same_everywhere(desk: Desk) -> None:
    """R2: the dedupe index, ON CONFLICT and every look for a twin say LIVE in the same words."""
    live = "state <> 'done' and (state <> 'failed' or next_retry_at is not null)"
    assert set(_live_texts().values()) == {f"idempotency_key is not null and {live}"}
    definition = desk.one("select pg_get_indexdef('todos_dedup'::regclass)")
    predicate = re.sub(r"::text|[()]", "", definition.partition(" WHERE ")[2]).lower()
    assert predicate == re.sub(r"[()]", "", f"idempotency_key is not null and {live}")
    assert definition.startswith("CREATE UNIQUE INDEX todos_dedup ON public.todos USING btree (endpoint_id, idempotency_key)")


def test_live_means_the_same_to_the_index_the_insert_and_the_look_up(desk: Desk) -> None:
    """R2: over every status: the index refuses a second row exactly where a create collapses and the twin is found."""
    endpoint = desk.endpoint()
    made = {
        "pending": desk.create(endpoint, idempotency_key="pending"),
        "claimed": desk.claimed(endpoint, idempotency_key="claimed"),
        "retrying": desk.parked(endpoint, idempotency_key="retrying"),
        "dead": desk.dead(endpoint, idempotency_key="dead"),
        "done": desk.done(endpoint, idempotency_key="done"),
    }
    predicate = desk.one("select pg_get_expr(indpred, indrelid) from pg_index where indexrelid = 'todos_dedup'::regclass")
    for status, todo in made.items():
        assert todo.status == status
        live = status in ("pending", "claimed", "retrying")
        assert desk.one(f"select {predicate} from todos where id = %s", todo.id) is live
        outcome = desk.ask_create(endpoint, idempotency_key=status)
        assert isinstance(outcome, Created)
        assert outcome.created is not live
        assert (outcome.todo.id == todo.id) is live


def test_a_batch_folds_equal_keys_and_answers_in_order(desk: Desk) -> None:
    """R1: within one batch the first of a key makes the todo and the others return it; outcomes stand in request order."""
    a, b = desk.endpoint(), desk.endpoint()
    asked = [(a, "k"), (a, None), (b, "k"), (a, "k"), (a, None), (b, "k"), (a, "m")]
    outcomes = creating.create(desk.session, [_new(e, idempotency_key=key, title=str(n)) for n, (e, key) in enumerate(asked)])
    made = [outcome for outcome in outcomes if isinstance(outcome, Created)]
    assert [outcome.created for outcome in made] == [True, True, True, False, True, False, True]
    assert (made[3].todo.id, made[5].todo.id) == (made[0].todo.id, made[2].todo.id)
    assert [outcome.todo.endpoint_id for outcome in made] == [endpoint for endpoint, _ in asked]
    assert [outcome.todo.title for outcome in made] == ["0", "1", "2", "0", "4", "2", "6"]


def test_ids_are_version_7_in_request_order_by_the_databases_clock(desk: Desk) -> None:
    """R13: ids are UUIDv7 of the database's instant, and rise within a batch and from one batch to the next."""
    endpoint = desk.endpoint()
    before = desk.one("select clock_timestamp()")
    # keys that sort against the order of the requests: rows are inserted by key, ids are given by request
    todos = [
        todo
        for batch in range(3)
        for todo in desk.create_many([_new(endpoint, idempotency_key=f"{batch}-{999 - n:03}") for n in range(200)])
    ]
    after = desk.one("select clock_timestamp()")
    assert ids(todos) == sorted(ids(todos))
    assert len({todo.id for todo in todos}) == len(todos)
    for todo in todos:
        assert (todo.id.version, todo.id.variant) == (7, "specified in RFC 4122")
        assert abs((todo.id.int >> 80) / 1000 - todo.created_at.timestamp()) < 0.002
        assert before <= todo.created_at <= after
        assert todo.created_at == todo.updated_at
    assert desk.row(todos[7])["created_at"] == todos[7].created_at
    assert all(one.created_at <= other.created_at for one, other in pairwise(todos))


@pytest.mark.parametrize("ordinal", [0, 1, 4_095, 4_096, 16_383])
def test_an_id_remembers_its_place_in_the_batch(desk: Desk, ordinal: int) -> None:
    """R13: the place in the batch is read back from the id itself, over the whole range."""
    assert desk.one("select uuid_v7_ordinal(uuid_v7(clock_timestamp(), %s))", ordinal) == ordinal


@pytest.mark.parametrize("at", ["1970-01-01 00:00:00.000001+00", "2026-07-21 12:34:56.999999+00", "2262-01-01 00:00:00+00"])
def test_ids_sort_by_instant_to_the_microsecond(desk: Desk, at: str) -> None:
    """R13: an id made a microsecond later, at any place of its batch, sorts later."""
    earlier = desk.one("select uuid_v7(%s::timestamptz, 16383)", at)
    later = desk.one("select uuid_v7(%s::timestamptz + interval '1 microsecond', 0)", at)
    assert earlier < later
    assert (earlier.version, later.version) == (7, 7)


def test_a_create_returns_what_is_stored(desk: Desk) -> None:
    """R22, R13: what a create answers, put together from what was sent, is the row as a reader finds it, byte for byte."""
    endpoint = desk.endpoint()
    payload = '{"b": 1.10,  "a": "\\u00e9 ✓", "b": 2}'
    todo = desk.create(endpoint, payload=payload, title="t", kind="k", assignee="ada", idempotency_key="ключ", max_attempts=3)
    assert desk.now(todo) == todo
    assert todo.payload_bytes == len(payload.encode())


@pytest.mark.parametrize("scope", ["revoked", "unknown", None, "x"])
def test_a_scope_that_owns_nothing_makes_nothing(desk: Desk, scope: str | None) -> None:
    """R14, R16, R17: a create under a revoked, unknown or malformed endpoint is Unauthorized and never "not found"."""
    endpoint: object = scope
    if scope == "revoked":
        revoked = desk.endpoint()
        desk.revoke(revoked)
        endpoint = revoked
    elif scope == "unknown":
        endpoint = NOWHERE
    good = desk.endpoint()
    commands = [_new(endpoint, idempotency_key="k"), _new(good), _new(endpoint)]  # type: ignore[arg-type]  # converted
    outcomes = creating.create(desk.session, commands)
    assert [type(outcome) for outcome in outcomes] == [Unauthorized, Created, Unauthorized]


def test_a_twin_that_ends_in_the_middle_is_no_reason_to_answer_not_found(commons: str) -> None:
    """R14, C47: 20 callers create one key while its todo is finished over and over, for a while.

    Each is always answered with a todo. `created` is true once for each life of the key, and never are two alive.
    """
    with open_session(commons) as session:
        endpoint = Desk(session).endpoint()
    callers = 20
    until = time.monotonic() + RACE_SECONDS

    def create(desk: Desk, barrier: threading.Barrier) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while time.monotonic() < until:
            outcomes.append(committed(desk.session, lambda: desk.ask_create(endpoint, idempotency_key="k")))
        return outcomes

    def finish(desk: Desk, barrier: threading.Barrier) -> list[Outcome]:
        while time.monotonic() < until:
            for todo in committed(desk.session, lambda: desk.claim(endpoint, "work")):
                committed(desk.session, lambda todo=todo: desk.complete(todo))  # type: ignore[misc]
            assert desk.one("select count(*) from todos where endpoint_id = %s and state <> 'done'", endpoint) <= 1
        return []

    outcomes = [outcome for answers in together(commons, [*[create] * callers, finish]) for outcome in answers]
    assert all(isinstance(outcome, Created) for outcome in outcomes)
    made = [outcome.todo.id for outcome in outcomes if isinstance(outcome, Created) and outcome.created]
    with open_session(commons) as session:
        rows = Desk(session).rows("select id from todos where endpoint_id = %s", endpoint)
    assert sorted(made) == sorted(row["id"] for row in rows)
    assert len(made) > 1


def test_a_twin_that_ends_between_the_insert_and_the_look_up_is_replaced(commons: str) -> None:
    """R14: the insert met a live twin, the look-up finds it ended: the pair is tried again, and makes a new todo.

    The moment between the two is held open by a second key of the batch, for which the insert has to wait.
    """
    with open_session(commons) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        old = desk.claim_this(desk.create(endpoint, idempotency_key="a"))

    def hold_the_moment_open(desk: Desk, barrier: threading.Barrier) -> list[Outcome]:
        def work() -> list[Outcome]:
            outcomes = [desk.ask_create(endpoint, idempotency_key="b")]
            barrier.wait()
            until_somebody_waits(desk)
            with open_session(commons) as other:
                assert Desk(other).complete(old).state == "done"
            return outcomes

        return committed(desk.session, work)

    def create(desk: Desk, barrier: threading.Barrier) -> list[Outcome]:
        barrier.wait()
        commands = [_new(endpoint, idempotency_key=key) for key in ("a", "b")]
        return committed(desk.session, lambda: creating.create(desk.session, commands))

    (b,), (a, twin_of_b) = together(commons, [hold_the_moment_open, create])
    assert [_created(outcome).created for outcome in (b, a, twin_of_b)] == [True, True, False]
    assert _created(a).todo.id != old.id
    assert _created(twin_of_b).todo.id == _created(b).todo.id


def test_a_create_that_waited_for_its_twin_to_end_makes_a_new_one(commons: str) -> None:
    """R14: a create that meets a completion still under way waits for it, and is then a new todo."""
    with open_session(commons) as session:
        desk = Desk(session)
        endpoint = desk.endpoint()
        old = desk.claim_this(desk.create(endpoint, idempotency_key="k"))

    def finish(desk: Desk, barrier: threading.Barrier) -> Todo:
        def work() -> Todo:
            done = desk.complete(old)
            barrier.wait()
            until_somebody_waits(desk)
            return done

        return committed(desk.session, work)

    def create(desk: Desk, barrier: threading.Barrier) -> Todo:
        barrier.wait()
        outcome = _created(committed(desk.session, lambda: desk.ask_create(endpoint, idempotency_key="k")))
        assert outcome.created
        return outcome.todo

    done, fresh = together(commons, [finish, create])
    assert (done.state, fresh.state) == ("done", "pending")
    assert fresh.id != old.id


def test_a_create_that_waited_for_a_rival_returns_the_rivals_todo(commons: str) -> None:
    """R14: two creates of one key at once, the first still uncommitted: the second waits, then returns the first's todo."""
    with open_session(commons) as session:
        endpoint = Desk(session).endpoint()

    def first(desk: Desk, barrier: threading.Barrier) -> Created:
        def work() -> Outcome:
            outcome = desk.ask_create(endpoint, idempotency_key="k")
            barrier.wait()
            until_somebody_waits(desk)
            return outcome

        return _created(committed(desk.session, work))

    def second(desk: Desk, barrier: threading.Barrier) -> Created:
        barrier.wait()
        return _created(committed(desk.session, lambda: desk.ask_create(endpoint, idempotency_key="k")))

    one, other = together(commons, [first, second])
    assert (one.created, other.created) == (True, False)
    assert one.todo.id == other.todo.id


def _created(outcome: Outcome) -> Created:
    assert isinstance(outcome, Created)
    return outcome
