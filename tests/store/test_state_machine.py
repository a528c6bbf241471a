"""Every operation of the store in any order, held against the specification: R1 to R9, R15, R17, R32, and the table itself.

Hypothesis plays several owners at several endpoints and moves time by back-dating. After each step every row is compared
with how it was before: its change must be an arrow of `switchboard.todo.TRANSITIONS` for that operation, of a row that the
operation may touch, and the outcome must be the one that the specification names. The oracle below knows rows and rules,
and no SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from switchboard.commands import (
    Claimed,
    ClaimNext,
    ClaimOne,
    Complete,
    Created,
    CreateTodo,
    Fail,
    Heartbeat,
    Held,
    HolderVerb,
    Moved,
    Outcome,
    Release,
    Undo,
    rings_of,
)
from switchboard.database.border import Session
from switchboard.errors import Conflict, NotFound, Unauthorized
from switchboard.store import claiming, creating, sweeping
from switchboard.store.sweeping import REAP, REQUEUE, Sweep
from switchboard.todo import TRANSITIONS, Ring, Status, Transition
from tests.store.desk import Desk

QUEUES: Final = ("red", "blue")
OWNERS: Final = ("ada", "grace")
KEYS: Final = (None, None, "k1", "k2", "k3")
SCOPES: Final = ((), ("red",), ("blue",), ("blue", "red"), ("red", "nothing"))
LEASE_SECONDS: Final = 600
LIVE: Final = ("pending", "claimed", "retrying")
ENDS: Final[dict[Transition, str]] = {"complete": "completed", "fail": "failed", "release": "released", "revoke": "revoked"}

_ROWS = """
select t.*, case when t.state <> 'failed' then t.state when t.next_retry_at is null then 'dead' else 'retrying' end as status,
    coalesce(t.next_retry_at <= clock_timestamp(), false) as due,
    coalesce(t.lease_expires_at <= clock_timestamp(), false) as lapsed,
    extract(epoch from t.lease_expires_at - clock_timestamp())::float8 as lease_left
from todos t
where t.endpoint_id = any (%s)
"""
_HISTORY = "select todo_id, lease_token, attempt, owner, outcome, by_holder from attempts where endpoint_id = any (%s)"

# What a todo is never parted from.
LASTING: Final = (
    "endpoint_id",
    "queue",
    "source",
    "assignee",
    "max_attempts",
    "idempotency_key",
    "created_at",
    "payload_bytes",
)

Row = dict[str, Any]
Rows = dict[UUID, Row]

# Most commands mean something: what is aimed at is mostly there, in the endpoint, and held.
ASKED: Final = st.tuples(
    st.integers(0, 1), st.sampled_from(QUEUES), st.sampled_from(KEYS), st.sampled_from((None, None, *OWNERS))
)
WHICH: Final = st.sampled_from((*["right"] * 6, *["any"] * 2, "unknown"))
WHERE: Final = st.sampled_from((*["own"] * 8, "foreign"))
GUARD: Final = st.sampled_from((*["token"] * 3, *["both"] * 2, *["owner"] * 2, "neither", "wrong owner", "wrong token"))
PICK: Final = st.integers(0, 1_000)
PICKS: Final = st.lists(PICK, min_size=1, max_size=3)


@attrs.frozen
class Claim:
    """One claim that was handed out once, whatever became of it."""

    endpoint_id: UUID
    todo_id: UUID
    owner: str
    token: UUID


def live_holder(rows: Rows, endpoint_id: UUID, key: str | None, but: UUID | None = None) -> UUID | None:
    """The todo that is live and holds this key of this endpoint."""
    held = [
        id_
        for id_, row in rows.items()
        if row["endpoint_id"] == endpoint_id and row["idempotency_key"] == key and row["status"] in LIVE and id_ != but
    ]
    assert len(held) <= 1 or key is None
    return held[0] if held and key is not None else None


def may_have(row: Mapping[str, Any], endpoint_id: UUID, queues: Sequence[str], owner: str) -> bool:
    """Whether a claim of this scope and owner could be handed this row now."""
    return (
        row["endpoint_id"] == endpoint_id
        and (not queues or row["queue"] in queues)
        and row["assignee"] in (None, owner)
        and claimable(row)
    )


def claimable(row: Mapping[str, Any]) -> bool:
    """Pending; or parked with an elapsed window; or claimed with a lapsed lease below the cap (R9)."""
    if row["status"] == "claimed":
        return bool(row["lapsed"]) and row["attempt"] < row["max_attempts"]
    return row["status"] == "pending" or (row["status"] == "retrying" and bool(row["due"]))


def in_order(rows: Iterable[Mapping[str, Any]], *, overdue_first: bool) -> list[UUID]:
    """In which order claimable rows are handed out (R9)."""
    by_status: dict[str, list[tuple[Any, UUID]]] = {"pending": [], "retrying": [], "claimed": []}
    since = {"pending": "created_at", "retrying": "next_retry_at", "claimed": "lease_expires_at"}
    for row in rows:
        by_status[row["status"]].append((row[since[row["status"]]], row["id"]))
    pending, due, lapsed = ([id_ for _, id_ in sorted(by_status[status])] for status in ("pending", "retrying", "claimed"))
    return [*due, *lapsed, *pending] if overdue_first else [*pending, *due, *lapsed]


class StoreMachine(RuleBasedStateMachine):
    """The store on a session that is set back after each run, and what the oracle needs to know of the past."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        session.execute("savepoint example")
        self.desk = Desk(session)
        self.endpoints = [self.desk.endpoint() for _ in range(2)]
        self.ever = list(self.endpoints)
        self.revoked: set[UUID] = set()
        self.claims: list[Claim] = []
        self.turns: dict[tuple[UUID, tuple[str, ...]], float] = {}
        self.rows: Rows = {}
        self.history: dict[tuple[UUID, UUID], dict[str, Any]] = {}

    def teardown(self) -> None:
        """Nothing of this run is left."""
        self.desk.session.execute("rollback to example")
        self.desk.session.execute("release example")

    # After each step: a look at every row, and each change is held against the table.

    def step(self, *moves: tuple[Transition, set[UUID]]) -> None:
        """After an operation: every row of `moves` has made its transition, and no other row has changed."""
        before, history = self.rows, self.history
        self.look()
        by_id: dict[UUID, Transition] = {id_: transition for transition, ids in moves for id_ in ids}
        assert set(before) <= set(self.rows), "a todo has vanished"
        assert {id_ for id_, t in by_id.items() if t == "create"} == set(self.rows) - set(before)
        for id_, row in self.rows.items():
            if id_ in by_id:
                self.moved(by_id[id_], before.get(id_), row)
            else:
                assert self.settled(row) == self.settled(before[id_]), "a todo has moved that had no reason to"
            self.consistent(row)
        self.recorded(before, history, by_id)
        for endpoint_id in self.ever:
            for key in KEYS:
                live_holder(self.rows, endpoint_id, key)  # asserts that there is at most one

    def look(self) -> None:
        self.rows = {row["id"]: row for row in self.desk.rows(_ROWS, self.ever)}
        self.history = {(row["todo_id"], row["lease_token"]): row for row in self.desk.rows(_HISTORY, self.ever)}

    @staticmethod
    def settled(row: Mapping[str, Any]) -> dict[str, Any]:
        """A row without what time alone changes in how we see it."""
        return {name: value for name, value in row.items() if name not in ("lease_left", "due", "lapsed")}

    @staticmethod
    def moved(transition: Transition, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> None:
        """The change is an arrow of the table, and did to the row what that arrow means."""
        arrows = TRANSITIONS[transition]
        was: Status | None = None if before is None else before["status"]
        assert was in arrows, f"{transition} of a todo that was {was}"
        assert after["status"] in arrows[was], f"{transition} made {was} {after['status']}"
        if before is None:
            assert after["attempt"] == 0
            return
        assert [after[name] for name in LASTING] == [before[name] for name in LASTING]
        counted = {"claim": before["attempt"] + 1, "undo": before["attempt"] - 1, "retry": 0}
        assert after["attempt"] == counted.get(transition, before["attempt"])
        if len(arrows[was]) == 2:
            ended, not_ended = ("dead", {"pending", "retrying"})
            at_cap = before["attempt"] >= before["max_attempts"]
            assert (after["status"] == ended) if at_cap else (after["status"] in not_ended)
        if transition == "claim":
            assert after["lease_token"] != before["lease_token"]

    @staticmethod
    def consistent(row: Mapping[str, Any]) -> None:
        """What holds of every row at any time."""
        lease = [row[name] is not None for name in ("lease_token", "lease_seconds", "lease_expires_at")]
        assert lease == [row["state"] == "claimed"] * 3
        assert 0 <= row["attempt"] <= row["max_attempts"]
        assert row["attempt"] < row["max_attempts"] or row["status"] not in ("pending", "retrying")
        assert (row["next_retry_at"] is not None) == (row["status"] == "retrying")
        assert (row["completed_at"] is not None) == (row["status"] in ("done", "dead"))
        assert (row["owner"] is None) or row["status"] != "pending"
        if row["state"] == "claimed":
            assert row["assignee"] in (None, row["owner"])

    def recorded(self, before: Rows, history: Mapping[Any, Any], by_id: Mapping[UUID, Transition]) -> None:
        """Each claim that ended in this step has one row in the history, with the right end; an undone one has none."""
        ended = {
            (id_, row["lease_token"]): ENDS.get(by_id[id_], "expired")
            for id_, row in before.items()
            if id_ in by_id and row["lease_token"] is not None and self.rows[id_]["lease_token"] != row["lease_token"]
            if by_id[id_] != "undo"
        }
        new = {place: row["outcome"] for place, row in self.history.items() if place not in history}
        assert new == ended
        for id_, token in ended:
            row = self.history[id_, token]
            assert (row["attempt"], row["owner"]) == (before[id_]["attempt"], before[id_]["owner"])
        assert {place: self.history[place] for place in history} == dict(history), "history has been rewritten"

    # Operations

    @initialize(asked=st.lists(ASKED, min_size=8, max_size=8))
    def open_with_some_work(self, asked: list[tuple[int, str, str | None, str | None]]) -> None:
        self.create(asked, 3)

    @rule(asked=st.lists(ASKED, min_size=1, max_size=4), max_attempts=st.integers(1, 3))
    def create_some(self, asked: list[tuple[int, str, str | None, str | None]], max_attempts: int) -> None:
        self.create(asked, max_attempts)

    def create(self, asked: list[tuple[int, str, str | None, str | None]], max_attempts: int) -> None:
        commands = [
            CreateTodo(
                endpoint_id=self.endpoints[n], queue=queue, idempotency_key=key, assignee=owner, max_attempts=max_attempts
            )
            for n, queue, key, owner in asked
        ]
        outcomes = creating.create(self.desk.session, commands)
        made = [outcome for outcome in outcomes if isinstance(outcome, Created)]
        assert len(made) == len(commands)
        known: dict[tuple[UUID, str | None], UUID] = {}
        for command, outcome in zip(commands, made, strict=True):
            place = (command.endpoint_id, command.idempotency_key)
            twin = known.get(place) or live_holder(self.rows, *place)
            assert outcome.created is (twin is None)
            assert outcome.todo.id == (twin or outcome.todo.id)
            assert outcome.todo.endpoint_id == command.endpoint_id
            assert bool(rings_of(command, outcome)) is outcome.created
            if command.idempotency_key is not None:
                known[place] = outcome.todo.id
        self.step(("create", {outcome.todo.id for outcome in made if outcome.created}))

    @rule(place=st.integers(0, 1), queues=st.sampled_from(SCOPES), owner=st.sampled_from(OWNERS), limit=st.integers(1, 4))
    def claim_next(self, place: int, queues: tuple[str, ...], owner: str, limit: int) -> None:
        command = self.next(self.endpoints[place], queues, owner, limit)
        expected = self.to_be_handed(command, self.rows)
        (outcome,) = claiming.claim(self.desk.session, [command], self.desk.turns)
        self.step(("claim", set(expected)))
        assert self.handed(outcome, owner) == expected

    @rule(
        asked=st.lists(
            st.tuples(st.integers(0, 1), st.sampled_from(SCOPES), st.sampled_from(OWNERS), st.integers(1, 2)),
            min_size=2,
            max_size=4,
        )
    )
    def claim_next_in_one_batch(self, asked: list[tuple[int, tuple[str, ...], str, int]]) -> None:
        commands = [self.next(self.endpoints[place], queues, owner, limit) for place, queues, owner, limit in asked]
        for command in commands:
            self.overdue_first(command)
        outcomes = claiming.claim(self.desk.session, commands, self.desk.turns)
        got = [self.handed(outcome, command.owner) for command, outcome in zip(commands, outcomes, strict=True)]
        flat = [id_ for ids in got for id_ in ids]
        assert len(set(flat)) == len(flat), "a todo was handed out twice"
        before = self.rows
        self.step(("claim", set(flat)))
        for command, ids in zip(commands, got, strict=True):
            scope = (command.endpoint_id, command.queues, command.owner)
            assert all(may_have(before[id_], *scope) for id_ in ids)
            assert len(ids) <= command.limit
            if len(ids) < command.limit:
                assert not any(may_have(row, *scope) for row in self.rows.values()), "there was more, and it was not given"

    @rule(which=WHICH, pick=PICK, where=WHERE, owner=st.sampled_from(OWNERS))
    def claim_by_id(self, which: str, pick: int, where: str, owner: str) -> None:
        todo_id, endpoint_id = self.some_todo(which, pick, where, lambda row: claimable(row))
        row = self.rows.get(todo_id)
        command = ClaimOne(endpoint_id=endpoint_id, todo_id=todo_id, owner=owner, lease_seconds=LEASE_SECONDS)
        (outcome,) = claiming.claim(self.desk.session, [command], self.desk.turns)
        if row is None or row["endpoint_id"] != endpoint_id:
            self.step()
            assert isinstance(outcome, NotFound)
        elif not may_have(row, endpoint_id, (), owner):
            self.step()
            assert isinstance(outcome, Conflict)
            assert outcome.state == row["state"]
        else:
            self.step(("claim", {todo_id}))
            assert self.handed(outcome, owner) == [todo_id]

    @rule(which=WHICH, pick=PICK, where=WHERE, guard=GUARD, seconds=st.sampled_from((None, None, 30, 6_000)))
    def heartbeat(self, which: str, pick: int, where: str, guard: str, seconds: int | None) -> None:
        self.hold("heartbeat", Heartbeat(**self.aimed(which, pick, where, guard), lease_seconds=seconds))

    @rule(which=WHICH, pick=PICK, where=WHERE, guard=GUARD)
    def complete(self, which: str, pick: int, where: str, guard: str) -> None:
        self.hold("complete", Complete(**self.aimed(which, pick, where, guard)))

    @rule(pick=PICK, guard=GUARD, queues=st.sampled_from(SCOPES), limit=st.integers(1, 2))
    def complete_and_claim(self, pick: int, guard: str, queues: tuple[str, ...], limit: int) -> None:
        fields = self.aimed("right", pick, "own", guard)
        self.hold("complete", Complete(**fields, then=self.next(fields["endpoint_id"], queues, "ignored", limit)))

    @rule(which=WHICH, pick=PICK, where=WHERE, guard=GUARD)
    def fail(self, which: str, pick: int, where: str, guard: str) -> None:
        self.hold("fail", Fail(**self.aimed(which, pick, where, guard)))

    @rule(which=WHICH, pick=PICK, where=WHERE, guard=GUARD)
    def release(self, which: str, pick: int, where: str, guard: str) -> None:
        self.hold("release", Release(**self.aimed(which, pick, where, guard)))

    def hold(self, transition: Transition, command: Heartbeat | Complete | Fail | Release) -> None:
        row = self.rows.get(command.todo_id)
        seen = row is not None and row["endpoint_id"] == command.endpoint_id
        holds = row is not None and seen and row["state"] == "claimed" and self.guards(row, command)
        moves: list[tuple[Transition, set[UUID]]] = []
        following: list[UUID] = []
        if holds and row is not None:
            moves.append((transition, {command.todo_id}))
            if isinstance(command, Complete) and command.then is not None:
                wanted = attrs.evolve(command.then, owner=row["owner"])
                following = self.to_be_handed(wanted, {id_: r for id_, r in self.rows.items() if id_ != command.todo_id})
                moves.append(("claim", set(following)))
        end = self.history.get((command.todo_id, command.lease_token or uuid4()), {})
        ended = end.get("outcome") if end.get("by_holder") else None  # what an operator ended is nobody's repetition
        (outcome,) = self.desk.hold(command)
        self.step(*moves)
        if row is None or not seen:
            assert isinstance(outcome, NotFound)
        elif not holds:
            assert isinstance(outcome, Conflict)
            assert outcome.state == row["state"]
            assert outcome.already is (ended is not None and ended == ENDS.get(transition))
        else:
            assert isinstance(outcome, Moved)
            self.held_right(command, outcome, row, following)

    def held_right(self, command: Held, outcome: Moved, before: Mapping[str, Any], following: list[UUID]) -> None:
        after = self.rows[command.todo_id]
        assert outcome.todo.status == after["status"]
        assert bool(rings_of(command, outcome)) is (after["status"] == "pending")
        if isinstance(command, Heartbeat):
            if command.lease_seconds is None:
                assert after["lease_left"] == pytest.approx(max(before["lease_left"], LEASE_SECONDS), abs=10)
            else:
                assert after["lease_left"] == pytest.approx(command.lease_seconds, abs=10)
        if isinstance(command, Complete) and command.then is not None:
            assert outcome.then is not None
            assert self.handed(outcome.then, before["owner"]) == following

    @rule(which=WHICH, pick=PICK)
    def undo(self, which: str, pick: int) -> None:
        claim = self.some_claim(which, pick)
        command = Undo(endpoint_id=claim.endpoint_id, todo_id=claim.todo_id, lease_token=claim.token)
        row = self.rows.get(claim.todo_id)
        holds = row is not None and row["lease_token"] == claim.token
        (outcome,) = self.desk.hold(command)
        if holds:
            self.step(("undo", {claim.todo_id}))
            assert isinstance(outcome, Moved)
            assert rings_of(command, outcome)
        else:
            self.step()
            assert isinstance(outcome, NotFound if row is None else Conflict)

    @rule(which=WHICH, pick=PICK, where=WHERE)
    def retry(self, which: str, pick: int, where: str) -> None:
        todo_id, endpoint_id = self.some_todo(
            which, pick, where, lambda row: row["state"] == "failed" and row["endpoint_id"] not in self.revoked
        )
        row = self.rows.get(todo_id)
        outcome = self.desk.ask_retry(endpoint_id, todo_id)
        if row is None or row["endpoint_id"] != endpoint_id:
            self.step()
            assert isinstance(outcome, NotFound)
            return
        twin = live_holder(self.rows, endpoint_id, row["idempotency_key"], but=todo_id)
        if row["state"] == "failed" and twin is None and endpoint_id not in self.revoked:
            self.step(("retry", {todo_id}))
            assert isinstance(outcome, Moved)
        else:
            self.step()
            assert isinstance(outcome, Conflict)
            assert outcome.state == row["state"]
            assert outcome.todo_id == (twin if row["state"] == "failed" else None)

    @rule(picks=PICKS)
    def reap(self, picks: list[int]) -> None:
        self.leases_lapse(picks)
        self.sweep(REAP, "expire", {id_ for id_, row in self.rows.items() if row["status"] == "claimed" and row["lapsed"]})

    @rule(picks=PICKS)
    def requeue(self, picks: list[int]) -> None:
        self.windows_elapse(picks)
        self.sweep(REQUEUE, "requeue", {id_ for id_, row in self.rows.items() if row["status"] == "retrying" and row["due"]})

    def sweep(self, kind: Sweep, transition: Transition, expected: set[UUID]) -> None:
        swept = self.desk.sweep(kind)
        self.step((transition, expected))
        assert swept.moved == len(expected)
        rung = {id_ for id_ in expected if self.rows[id_]["status"] == "pending"}
        assert swept.dead_lettered == len(expected - rung)
        assert set(swept.rings) == {self.ring_owed(id_) for id_ in rung}

    @precondition(lambda self: len(self.ever) < 4)
    @rule(place=st.integers(0, 1), seldom=st.sampled_from((False, False, False, False, True)))
    def revoke(self, place: int, seldom: bool) -> None:
        if not seldom:
            return
        endpoint_id = self.endpoints[place]
        self.desk.revoke(endpoint_id)
        self.revoked.add(endpoint_id)
        swept = sweeping.sweep_revoked(self.desk.session, endpoint_id, ())
        left = {id_ for id_, row in self.rows.items() if row["endpoint_id"] == endpoint_id and row["status"] in LIVE}
        self.step(("revoke", left))
        assert (swept.moved, swept.dead_lettered, swept.rings) == (len(left), len(left), ())
        assert isinstance(self.desk.ask_create(endpoint_id), Unauthorized)
        self.endpoints[place] = self.desk.endpoint()
        self.ever.append(self.endpoints[place])

    # Time

    @rule(picks=PICKS)
    def leases_lapse(self, picks: list[int]) -> None:
        self.back_date("lease_expires_at", "claimed", picks)

    @rule(picks=PICKS)
    def windows_elapse(self, picks: list[int]) -> None:
        self.back_date("next_retry_at", "retrying", picks)

    def back_date(self, column: str, status: Status, picks: list[int]) -> None:
        """What is named has been over for a minute; each a little longer than the one before it."""
        known = sorted(id_ for id_, row in self.rows.items() if row["status"] == status)
        for pick in picks if known else ():
            self.desk.session.execute(
                f"update todos set {column} = clock_timestamp() - interval '1 minute' where id = %s".encode(),
                [known[pick % len(known)]],
            )
        self.look()

    @rule(seconds=st.sampled_from((0.5, 1.5)))
    def time_passes_for_turns(self, seconds: float) -> None:
        self.desk.clock.seconds += seconds

    # What the oracle knows

    def next(self, endpoint_id: UUID, queues: tuple[str, ...], owner: str, limit: int) -> ClaimNext:
        return ClaimNext(endpoint_id=endpoint_id, owner=owner, lease_seconds=LEASE_SECONDS, queues=queues, limit=limit)

    def overdue_first(self, command: ClaimNext) -> bool:
        """Whether it is this scope's turn to look at overdue todos first: once a second."""
        scope, now = (command.endpoint_id, command.queues), self.desk.clock.seconds
        if now - self.turns.get(scope, -1.0) < 1.0:
            return False
        self.turns[scope] = now
        return True

    def to_be_handed(self, command: ClaimNext, rows: Rows) -> list[UUID]:
        """Exactly which todos a claim is handed, in order."""
        mine = [row for row in rows.values() if may_have(row, command.endpoint_id, command.queues, command.owner)]
        return in_order(mine, overdue_first=self.overdue_first(command))[: command.limit]

    def handed(self, outcome: Outcome, owner: str) -> list[UUID]:
        """The ids of a claim's answer, each remembered as a claim."""
        assert isinstance(outcome, Claimed)
        for todo in outcome.todos:
            assert (todo.state, todo.owner) == ("claimed", owner)
            assert todo.lease_token is not None
            assert todo.lease_token not in {claim.token for claim in self.claims}
            self.claims.append(Claim(todo.endpoint_id, todo.id, owner, todo.lease_token))
        return [todo.id for todo in outcome.todos]

    @staticmethod
    def guards(row: Mapping[str, Any], command: HolderVerb) -> bool:
        """Whether what was sent along is the current claim's (R4)."""
        return command.lease_token in (None, row["lease_token"]) and command.owner in (None, row["owner"])

    def ring_owed(self, todo_id: UUID) -> Ring:
        row = self.rows[todo_id]
        return Ring(
            endpoint_id=row["endpoint_id"],
            queue=row["queue"],
            todo_id=todo_id,
            kind=row["kind"],
            source=row["source"],
            assignee=row["assignee"],
        )

    def some_todo(self, which: str, pick: int, where: str, right: Callable[[Row], bool]) -> tuple[UUID, UUID]:
        """A todo, mostly one that is right for this; and mostly its endpoint."""
        known = sorted(id_ for id_, row in self.rows.items() if which == "any" or right(row))
        if which == "unknown" or not known:
            return uuid4(), self.endpoints[0]
        todo_id = known[pick % len(known)]
        return todo_id, self.seen_from(self.rows[todo_id]["endpoint_id"], where)

    def seen_from(self, endpoint_id: UUID, where: str) -> UUID:
        return endpoint_id if where == "own" else next(other for other in self.endpoints if other != endpoint_id)

    def some_claim(self, which: str, pick: int) -> Claim:
        """A claim, mostly one under way; else one of the past, or one that never was."""
        under_way = {row["lease_token"] for row in self.rows.values()}
        known = [claim for claim in self.claims if which == "any" or claim.token in under_way]
        if which == "unknown" or not known:
            return Claim(self.endpoints[0], uuid4(), "ada", uuid4())
        return known[pick % len(known)]

    def aimed(self, which: str, pick: int, where: str, guard: str) -> dict[str, Any]:
        """What a holder sends: which todo, of which endpoint, and what proves that it is the holder."""
        claim = self.some_claim(which, pick)
        fields: dict[str, Any] = {"endpoint_id": self.seen_from(claim.endpoint_id, where), "todo_id": claim.todo_id}
        if guard in ("token", "both", "wrong owner"):
            fields["lease_token"] = claim.token
        if guard in ("owner", "both", "wrong token"):
            fields["owner"] = claim.owner
        if guard == "wrong token":
            fields["lease_token"] = uuid4()
        if guard == "wrong owner":
            fields["owner"] = "nobody"
        return fields


def test_every_interleaving_keeps_to_the_table(session: Session, request: pytest.FixtureRequest) -> None:
    """SPEC-0003: no order of operations makes a transition that the table does not have, or an outcome it does not mean."""
    long = request.config.getoption("--long")
    run_state_machine_as_test(
        lambda: StoreMachine(session),  # type: ignore[arg-type]  # any callable that makes one
        settings=settings(
            max_examples=1_500 if long else 80,
            stateful_step_count=80 if long else 50,
            derandomize=not long,  # the same runs each time; the long form looks for new ones
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
