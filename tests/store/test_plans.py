"""No statement of the hot path reads what it does not need: R11, C53, performance.md shapes 1, 3 and 5.

Every statement that the store sends is explained as it was sent (see `plans.py`): under statistics that are empty, stale,
skewed and fresh, and of a table that had just died; with plans made for the values, for any values, and whichever the server
keeps. The proof stands on the rows and pages that were really read; names of indexes only say why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

import attrs
import pytest

from switchboard.commands import Claimed, ClaimNext, Complete, CreateTodo, Fail, Heartbeat, Held, Moved, Release, Undo
from switchboard.database.border import Session
from switchboard.errors import Conflict
from switchboard.store import attending, creating, sweeping
from switchboard.store.sweeping import REAP, REQUEUE, SWEEP_ROWS_MAX
from switchboard.waiting_room import Scope
from tests.store.desk import Desk, open_session
from tests.store.filling import fill_with_history, fill_with_work
from tests.store.plans import Explainer

STATISTICS = ("empty", "stale", "dead", "skewed", "fresh")
PLANS = ("auto", "force_generic_plan", "force_custom_plan")
RUNS = 6
"""From the sixth execution on the server may keep a generic plan."""
BATCH = 100
OVERDUE, OVERDUE_OF_OTHERS = 200, 1_000

EXPECTED_INDEXES = {
    "claims/take_head_in_queue": {"todos_pool_queue", "todos_assigned", "ctid"},
    "claims/take_head_anywhere": {"todos_pool_any", "todos_assigned", "ctid"},
    "claims/lock_pending_in_queue": {"todos_pool_queue", "todos_assigned"},
    "claims/lock_pending_in_queues": {"todos_pool_queue", "todos_assigned"},
    "claims/lock_pending_leftover": {"todos_pool_queue", "todos_assigned"},
    "claims/lock_pending_anywhere": {"todos_pool_any", "todos_assigned"},
    "claims/lock_due": {"todos_retry_endpoint"},
    "claims/lock_lapsed": {"todos_lease_endpoint"},
}
"""The only ways in which the claim's probes look for rows."""


@attrs.frozen(kw_only=True)
class World:
    """A database whose history is large and whose work is of every kind."""

    conninfo: str
    big: UUID
    small: UUID
    claimed: list[UUID]
    parked: list[UUID]


Worlds = Callable[[str, int], World]

_TENANTS = b"""
insert into endpoints (id, name, credential_sha256, revoked_at, drained_at)
select gen_random_uuid(), 'tenant-' || n, sha256(n::text::bytea), r.at, r.at
from generate_series(1, 400) as s (n)
cross join lateral (select case when n % 2 = 0 then clock_timestamp() end as at) r
"""


def _fill(session: Session, statistics: str, rows: int) -> tuple[UUID, UUID, list[UUID], list[UUID]]:
    desk = Desk(session)
    big, small, other = desk.endpoint(), desk.endpoint(), desk.endpoint()
    session.execute(_TENANTS)
    for table in ("todos", "attempts", "endpoints"):
        # autovacuum would change the statistics under test
        session.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
    if statistics == "stale":
        for what in ("pending", "claimed", "retrying"):
            fill_with_work(session, other, what, 3)
        fill_with_history(session, other, 10)
        session.execute("analyze")
    if statistics == "dead":
        # analyzed when nothing was left alive on its pages, as after a purge: the planner then takes any table for empty
        session.execute("begin")
        fill_with_history(session, other, rows)
        for what in ("pending", "claimed", "lapsed", "retrying", "due"):
            fill_with_work(session, other, what, 2_000)
        session.execute("rollback")
        session.execute("analyze")
    if statistics == "fresh":
        fill_with_history(session, big, rows // 2)
        fill_with_history(session, other, rows // 2)
    else:
        fill_with_history(session, big, rows)
    fill_with_history(session, small, 50)
    fill_with_work(session, big, "pending", 2_000, queue="crowded")
    fill_with_work(session, big, "pending", 2_000, queue="crowded", assignee="grace")
    fill_with_work(session, big, "pending", 30, queue="work", assignee="ada")
    for endpoint, rows_overdue in ((other, OVERDUE_OF_OTHERS), (big, OVERDUE)):
        # others' are older, so that whoever does not look at its own endpoint alone meets them first
        fill_with_work(session, endpoint, "due", rows_overdue)
        fill_with_work(session, endpoint, "lapsed", rows_overdue)
    claimed = fill_with_work(session, big, "claimed", 600)
    parked = fill_with_work(session, big, "retrying", 600)
    for endpoint in (big, small):
        # the youngest of all: whoever looks for them through a wider index meets everything else first
        for queue in ("work", "side", "third"):
            fill_with_work(session, endpoint, "pending", 300 if endpoint == big else 5, queue=queue)
    if statistics in ("skewed", "fresh"):
        session.execute("vacuum analyze" if statistics == "fresh" else "analyze")
    return big, small, claimed, parked


@pytest.fixture(scope="module")
def worlds(new_database: Callable[[], str]) -> Worlds:
    """One filled database for each kind of statistics and each size, made when it is first asked for."""
    made: dict[tuple[str, int], World] = {}

    def world(statistics: str, rows: int) -> World:
        if (statistics, rows) not in made:
            conninfo = new_database()
            with open_session(conninfo, "set statement_timeout = 0") as session:
                big, small, claimed, parked = _fill(session, statistics, rows)
            made[statistics, rows] = World(conninfo=conninfo, big=big, small=small, claimed=claimed, parked=parked)
        return made[statistics, rows]

    return world


Work = Callable[[Desk, "World"], None]


def judge(world: World, plans: str, works: Mapping[str, Work], *, rows: int, buffers: int, buffers_written: int) -> None:
    """Does each work on one session, undone each time, and looks at every statement that it sent.

    None may begin at one end of a table, or read more rows of todos or more pages than it is allowed; those that write
    touch a page or two of every index for each row. What is overdue waits for one sweep at most, so claims have no index
    for it by queue, and may look at all of it.
    """
    with open_session(world.conninfo, f"set plan_cache_mode = {plans}") as session:
        for _ in range(RUNS if plans == "auto" else 1):
            for name, work in works.items():
                session.execute("begin")
                with Explainer(session) as explainer:
                    work(Desk(session), world)
                session.execute("rollback")
                assert explainer.statements
                for statement in explainer.statements:
                    overdue = OVERDUE if statement.name in ("claims/lock_due", "claims/lock_lapsed") else 0
                    why = f"{name}: {statement}\n{statement.text}"
                    assert not [scan for scan in statement.scans if scan.reads_all and scan.rows_read > 10], why
                    assert statement.rows_of_todos_read <= rows + overdue, why
                    assert statement.buffers <= (buffers_written if statement.writes else buffers + overdue), why
                    expected = EXPECTED_INDEXES.get(statement.name)
                    assert expected is None or {scan.index for scan in statement.of_todos} <= expected, why


def _claim_in_queue(desk: Desk, world: World) -> None:
    for endpoint in (world.big, world.small):
        assert len(desk.claim(endpoint, "third")) == 1
        assert len(desk.claim(endpoint, "third")) == 1


def _claim_in_queues(desk: Desk, world: World) -> None:
    for endpoint in (world.big, world.small):
        assert len(desk.claim(endpoint, "side", "third")) == 1
        assert len(desk.claim(endpoint, "side", "third")) == 1


def _claim_anywhere(desk: Desk, world: World) -> None:
    for endpoint in (world.big, world.small):
        assert len(desk.claim(endpoint)) == 1
        assert len(desk.claim(endpoint)) == 1


def _claim_as_assignee(desk: Desk, world: World) -> None:
    for queues in (("work",), ("side", "work"), ()):
        assert len(desk.claim(world.big, *queues, owner="ada")) == 1
        assert len(desk.claim(world.big, *queues, owner="ada")) == 1


def _claim_what_is_not_there(desk: Desk, world: World) -> None:
    for queues in (("nothing",), ("nothing", "nowhere")):
        assert desk.claim(world.small, *queues) == []
        assert desk.claim(world.small, *queues) == []


def _claim_by_id(desk: Desk, world: World) -> None:
    (todo,) = desk.claim(world.small, "third")
    desk.release(todo)
    assert desk.claim_this(todo).attempt == 2
    assert isinstance(desk.ask_claim(world.small, todo.id), Conflict)


ONES: dict[str, Work] = {
    "in a queue": _claim_in_queue,
    "in queues": _claim_in_queues,
    "anywhere": _claim_anywhere,
    "as assignee": _claim_as_assignee,
    "nothing": _claim_what_is_not_there,
    "by id": _claim_by_id,
}


def _claim_many_heads(desk: Desk, world: World) -> None:
    for queues in (("third",), ()):
        desk.claim(world.big, *queues)  # whose turn may be what is overdue
        commands = [
            ClaimNext(endpoint_id=world.big, owner=f"worker-{n}", lease_seconds=60, queues=queues) for n in range(BATCH)
        ]
        assert all(isinstance(outcome, Claimed) and outcome.todos for outcome in desk.ask_claims(*commands))


def _claim_many_in_queue(desk: Desk, world: World) -> None:
    for _ in range(2):
        assert len(desk.claim(world.big, "third", limit=BATCH)) == BATCH


def _claim_many_in_queues(desk: Desk, world: World) -> None:
    for _ in range(2):
        assert len(desk.claim(world.big, "side", "third", "nothing", limit=BATCH)) == BATCH


def _claim_many_anywhere(desk: Desk, world: World) -> None:
    for _ in range(2):
        assert len(desk.claim(world.big, limit=BATCH)) == BATCH


def _claim_many_as_assignee(desk: Desk, world: World) -> None:
    for queues in (("work",), ("side", "work"), ()):
        for _ in range(2):
            desk.claim(world.big, *queues, limit=BATCH, owner="ada")


def _hold(*verbs: type[Heartbeat | Complete | Fail | Release]) -> Work:
    def work(desk: Desk, world: World) -> None:
        for verb in verbs:
            held: list[Held] = [
                verb(endpoint_id=world.big, todo_id=todo_id, owner="worker") for todo_id in world.claimed[:BATCH]
            ]
            assert all(isinstance(outcome, Moved) for outcome in desk.hold(*held))

    return work


def _undo(desk: Desk, world: World) -> None:
    tokens = desk.rows("select id, lease_token from todos where id = any (%s)", world.claimed[:BATCH])
    undone = [Undo(endpoint_id=world.big, todo_id=row["id"], lease_token=row["lease_token"]) for row in tokens]
    assert all(isinstance(outcome, Moved) for outcome in desk.hold(*undone))


def _finish_twice(desk: Desk, world: World) -> None:
    tokens = desk.rows("select id, lease_token from todos where id = any (%s)", world.claimed[:BATCH])
    held = [Complete(endpoint_id=world.big, todo_id=row["id"], lease_token=row["lease_token"]) for row in tokens]
    desk.hold(*held)
    assert all(isinstance(outcome, Conflict) and outcome.already for outcome in desk.hold(*held))


def _create(desk: Desk, world: World) -> None:
    keys = [f"new-{n}" for n in range(BATCH // 2)] + [f"pending-third--{n}" for n in range(1, BATCH // 2 + 1)]
    commands = [CreateTodo(endpoint_id=world.big, queue="work", max_attempts=5, idempotency_key=key) for key in keys]
    outcomes = creating.create(desk.session, commands)
    assert [getattr(outcome, "created", None) for outcome in outcomes] == [True] * (BATCH // 2) + [False] * (BATCH // 2)


BATCHES: dict[str, Work] = {
    "claim heads": _claim_many_heads,
    "claim in a queue": _claim_many_in_queue,
    "claim in queues": _claim_many_in_queues,
    "claim anywhere": _claim_many_anywhere,
    "claim as assignee": _claim_many_as_assignee,
    "heartbeat and complete": _hold(Heartbeat, Complete),
    "fail": _hold(Fail),
    "release": _hold(Release),
    "undo": _undo,
    "finish twice": _finish_twice,
    "create": _create,
}


def _retry(desk: Desk, world: World) -> None:
    parked = [desk.ask_retry(world.big, todo_id) for todo_id in world.parked[:3]]
    assert all(isinstance(outcome, Moved) for outcome in parked)
    dead = desk.rows("select id, idempotency_key from todos where endpoint_id = %s and state = 'failed' limit 600", world.big)
    in_the_way = next(row for row in dead if row["id"] not in world.parked)
    desk.create(world.big, idempotency_key=in_the_way["idempotency_key"])
    outcome = desk.ask_retry(world.big, in_the_way["id"])
    assert isinstance(outcome, Conflict)
    assert outcome.todo_id is not None


def _reap(desk: Desk, world: World) -> None:
    assert desk.sweep(REAP).moved == SWEEP_ROWS_MAX


def _requeue(desk: Desk, world: World) -> None:
    assert desk.sweep(REQUEUE).moved == SWEEP_ROWS_MAX


def _revoke(desk: Desk, world: World) -> None:
    desk.revoke(world.small)
    assert sweeping.sweep_revoked(desk.session, world.small, ()).moved == 15
    assert sweeping.sweep_revoked(desk.session, world.small, ()).moved == 0
    desk.revoke(world.big)
    assert sweeping.sweep_revoked(desk.session, world.big, ()).moved == SWEEP_ROWS_MAX


WANTED = 20


def _look_for_everybody(desk: Desk, world: World) -> None:
    scopes = [
        Scope(endpoint_id=endpoint, queue=queue, owner=owner, wanted=WANTED, waiters=WANTED)
        for endpoint in (world.big, world.small)
        for queue in ("work", "side", "nothing", None)
        for owner in (None, "ada", "grace")
    ]
    seen = attending.look(desk.session, scopes, [(world.big, b"wrong"), (world.small, b"wrong")])
    assert len(seen.heads) > 5 * WANTED
    assert len(seen.refused) == 2
    ids = [(world.big, head.ring.todo_id) for head in seen.heads[:WANTED]]
    assert len(attending.pending(desk.session, ids)) == WANTED
    for queues, found in ((("nothing",), 0), (("nothing", "third"), WANTED), (None, WANTED)):
        assert len(attending.already_waiting(desk.session, world.big, queues, "linus", WANTED)) == found


SWEEPS: dict[str, Work] = {"reap": _reap, "requeue": _requeue, "revoke": _revoke}

settings = pytest.mark.parametrize(
    ("statistics", "plans"),
    [
        # what the server keeps by itself is one of the two other plans, so that most of it can wait for --long
        pytest.param(statistics, plans, marks=[pytest.mark.long] if plans == "auto" and statistics != "stale" else [])
        for statistics in STATISTICS
        for plans in PLANS
    ],
)


@pytest.fixture(params=[pytest.param(20_000, id="20k"), pytest.param(500_000, id="500k", marks=pytest.mark.long)])
def rows(request: pytest.FixtureRequest) -> int:
    """How many terminal todos there are."""
    count: int = request.param
    return count


@settings
def test_a_claim_of_one_reads_a_few_pages(worlds: Worlds, rows: int, statistics: str, plans: str) -> None:
    """R11, C53: whatever the statistics say, no step of a claim of one todo reads more than a few rows and pages."""
    judge(worlds(statistics, rows), plans, ONES, rows=4, buffers=40, buffers_written=100)


@settings
def test_a_batch_reads_a_few_pages_for_each_row(worlds: Worlds, rows: int, statistics: str, plans: str) -> None:
    """R11: a batch of a hundred looks its rows up one by one; nothing else is read, however large the history."""
    # of one row: three levels of its index, as many of its endpoint's, and the dead versions on the way (15.4 were seen)
    limits = {"rows": 4 * BATCH, "buffers": 20 * BATCH, "buffers_written": 60 * BATCH}
    judge(worlds(statistics, rows), plans, BATCHES, **limits)


@settings
def test_a_look_for_those_who_attend_reads_what_it_shows(worlds: Worlds, rows: int, statistics: str, plans: str) -> None:
    """R25, performance.md shape 8: once a second, so it reads the heads of the lines that somebody stands in, and no more."""
    limits = {"rows": 1_500, "buffers": 2_000, "buffers_written": 2_000}
    judge(worlds(statistics, rows), plans, {"look": _look_for_everybody}, **limits)


@settings
def test_a_sweep_reads_what_it_moves(worlds: Worlds, rows: int, statistics: str, plans: str) -> None:
    """R11: sweeps read the rows they move, and no terminal one; a retry reads its todo and its twin."""
    limits = {"rows": 2 * SWEEP_ROWS_MAX, "buffers": 15 * SWEEP_ROWS_MAX, "buffers_written": 60 * SWEEP_ROWS_MAX}
    judge(worlds(statistics, rows), plans, SWEEPS, **limits)
    judge(worlds(statistics, rows), plans, {"retry": _retry}, rows=4, buffers=40, buffers_written=150)
