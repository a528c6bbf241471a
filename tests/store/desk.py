"""The store as its callers use it, in few words; and time, which tests move by back-dating rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

import attrs
from psycopg.rows import dict_row

from switchboard.commands import (
    Claim,
    Claimed,
    ClaimNext,
    ClaimOne,
    Complete,
    Created,
    CreateTodo,
    Fail,
    Heartbeat,
    Held,
    Moved,
    Outcome,
    Release,
    Retry,
    undo_of,
)
from switchboard.database.border import Bounds, Session, session_conninfo
from switchboard.store import claiming, creating, endpoints, holding, reading, retrying, sweeping
from switchboard.store.overdue_turns import OverdueTurns
from switchboard.store.sweeping import Sweep, Swept
from switchboard.todo import Attempt, Todo

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")
Row = dict[str, Any]


@attrs.define
class Clock:
    """A clock that stands still until it is told to go on."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@contextmanager
def open_session(conninfo: str, options: str = "") -> Iterator[Session]:
    """A session with all that the border sets, and `options` of this test's own; each statement commits by itself."""
    given = session_conninfo(conninfo, Bounds.within(10))
    with Session.connect(given, autocommit=True, prepare_threshold=0) as session:
        if options:
            session.execute(options.encode())
        yield session


class Desk:
    """Where callers bring their commands: every verb of the store, one command at a time, on one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.clock = Clock()
        self.turns = OverdueTurns(self.clock)

    # Endpoints

    def endpoint(self, *queues: str) -> UUID:
        """A new endpoint; without `queues` it may use every one."""
        name = f"e-{uuid4().hex[:12]}"
        return endpoints.vend(self.session, name, uuid4().bytes * 2, queues or None).id

    def revoke(self, endpoint_id: UUID) -> None:
        """Revokes an endpoint, and nothing else: its todos are left to the sweep."""
        (row,) = self.rows("select name from endpoints where id = %s", endpoint_id)
        endpoints.revoke(self.session, row["name"])

    # Verbs

    def ask_create(self, endpoint_id: object, queue: str = "work", *, max_attempts: int = 5, **fields: Any) -> Outcome:
        """The outcome of one create."""
        command = CreateTodo(
            endpoint_id=endpoint_id,
            queue=queue,
            max_attempts=max_attempts,
            **fields,
        )
        (outcome,) = creating.create(self.session, [command])
        return outcome

    def create(self, endpoint_id: UUID, queue: str = "work", *, max_attempts: int = 5, **fields: Any) -> Todo:
        """A new todo."""
        outcome = self.ask_create(endpoint_id, queue, max_attempts=max_attempts, **fields)
        assert isinstance(outcome, Created)
        assert outcome.created
        return outcome.todo

    def create_many(self, commands: Sequence[CreateTodo]) -> list[Todo]:
        """New todos, in one batch."""
        outcomes = creating.create(self.session, commands)
        assert all(isinstance(outcome, Created) and outcome.created for outcome in outcomes)
        return [outcome.todo for outcome in outcomes if isinstance(outcome, Created)]

    def claim(
        self, endpoint_id: object, *queues: str, owner: str = "worker", limit: int = 1, lease_seconds: int = 60
    ) -> list[Todo]:
        """The todos that a claim over these queues (none: any) hands out."""
        command = ClaimNext(
            endpoint_id=endpoint_id,
            owner=owner,
            lease_seconds=lease_seconds,
            queues=queues,
            limit=limit,
        )
        (outcome,) = claiming.claim(self.session, [command], self.turns)
        assert isinstance(outcome, Claimed)
        return list(outcome.todos)

    def claim_this(self, todo: Todo, *, owner: str = "worker", lease_seconds: int = 60) -> Todo:
        """A claim by id that succeeds."""
        outcome = self.ask_claim(todo.endpoint_id, todo.id, owner=owner, lease_seconds=lease_seconds)
        assert isinstance(outcome, Claimed), outcome
        (claimed,) = outcome.todos
        return claimed

    def ask_claim(self, endpoint_id: object, todo_id: object, *, owner: str = "worker", lease_seconds: int = 60) -> Outcome:
        """The outcome of a claim by id."""
        command = ClaimOne(
            endpoint_id=endpoint_id,
            todo_id=todo_id,
            owner=owner,
            lease_seconds=lease_seconds,
        )
        (outcome,) = claiming.claim(self.session, [command], self.turns)
        return outcome

    def ask_claims(self, *commands: Claim) -> list[Outcome]:
        """The outcomes of several claims in one transaction."""
        return claiming.claim(self.session, commands, self.turns)

    def hold(self, *commands: Held) -> list[Outcome]:
        """The outcomes of a batch of holder's verbs."""
        return holding.hold(self.session, commands, self.turns)

    def hold_one(self, command: Held) -> Outcome:
        """The outcome of one holder's verb."""
        (outcome,) = self.hold(command)
        return outcome

    def complete(self, todo: Todo, **fields: Any) -> Todo:
        """A completion by the holder, which succeeds."""
        return moved(self.hold_one(Complete(**held_by(todo), **fields)))

    def fail(self, todo: Todo, **fields: Any) -> Todo:
        """A failure by the holder, which succeeds."""
        return moved(self.hold_one(Fail(**held_by(todo), **fields)))

    def heartbeat(self, todo: Todo, **fields: Any) -> Todo:
        """A heartbeat by the holder, which succeeds."""
        return moved(self.hold_one(Heartbeat(**held_by(todo), **fields)))

    def release(self, todo: Todo) -> Todo:
        """A release by the holder, which succeeds."""
        return moved(self.hold_one(Release(**held_by(todo))))

    def undo(self, todo: Todo) -> Outcome:
        """The outcome of taking a claim back."""
        return self.hold_one(undo_of(todo))

    def ask_retry(self, endpoint_id: object, todo_id: object) -> Outcome:
        """The outcome of an explicit retry."""
        command = Retry(
            endpoint_id=endpoint_id,
            todo_id=todo_id,
        )
        return retrying.retry(self.session, command)

    def retry(self, todo: Todo) -> Todo:
        """An explicit retry, which succeeds."""
        return moved(self.ask_retry(todo.endpoint_id, todo.id))

    def sweep(self, kind: Sweep, bad: Sequence[UUID] = ()) -> Swept:
        """One batch of a sweep."""
        return sweeping.sweep(self.session, kind, bad)

    # States to begin with

    def dead(self, endpoint_id: UUID, queue: str = "work", **fields: Any) -> Todo:
        """A dead-lettered todo."""
        return self.fail(self.claim_this(self.create(endpoint_id, queue, max_attempts=1, **fields)), error="broken")

    def parked(self, endpoint_id: UUID, queue: str = "work", **fields: Any) -> Todo:
        """A failed todo whose retry window is open."""
        return self.fail(self.claim_this(self.create(endpoint_id, queue, **fields)), error="broken")

    def done(self, endpoint_id: UUID, queue: str = "work", **fields: Any) -> Todo:
        """A done todo."""
        return self.complete(self.claim_this(self.create(endpoint_id, queue, **fields)))

    def claimed(self, endpoint_id: UUID, queue: str = "work", *, owner: str = "worker", **fields: Any) -> Todo:
        """A claimed todo."""
        return self.claim_this(self.create(endpoint_id, queue, **fields), owner=owner)

    # Time

    def lapse(self, *todos: Todo) -> None:
        """Their leases ran out a second ago."""
        self.session.execute(
            "update todos set lease_expires_at = clock_timestamp() - interval '1 second' where id = any (%s)",
            [[todo.id for todo in todos]],
        )

    def let_window_pass(self, *todos: Todo) -> None:
        """Their retry windows elapsed a second ago."""
        self.session.execute(
            "update todos set next_retry_at = clock_timestamp() - interval '1 second' where id = any (%s)",
            [[todo.id for todo in todos]],
        )

    # Looking

    def now(self, todo: Todo) -> Todo:
        """The todo as its endpoint sees it now."""
        found = reading.find(self.session, todo.endpoint_id, todo.id)
        assert found is not None
        return found

    def row(self, todo: Todo) -> Row:
        """Every column of the todo's row."""
        (row,) = self.rows("select * from todos where id = %s", todo.id)
        return row

    def rows(self, statement: str, *values: object) -> list[Row]:
        """What a statement of the test's own returns."""
        with self.session.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement.encode(), values).fetchall()

    def one(self, statement: str, *values: object) -> Any:
        """The single value that a statement of the test's own returns."""
        (row,) = self.rows(statement, *values)
        (value,) = row.values()
        return value

    def history(self, todo: Todo) -> list[Attempt]:
        """Every claim of the todo, oldest first."""
        return reading.history(self.session, self.now(todo))


def moved(outcome: Outcome) -> Todo:
    """The todo of an outcome that must be a success."""
    assert isinstance(outcome, Moved), outcome
    return outcome.todo


def held_by(todo: Todo) -> dict[str, Any]:
    """What the holder of this claim sends with every verb (R4)."""
    return {"endpoint_id": todo.endpoint_id, "todo_id": todo.id, "lease_token": todo.lease_token}


def owned_by(todo: Todo, owner: str | None) -> dict[str, Any]:
    """What a caller sends who names the owner and no token."""
    return {"endpoint_id": todo.endpoint_id, "todo_id": todo.id, "owner": owner}


def ids(todos: Sequence[Todo]) -> list[UUID]:
    """Their ids, in order."""
    return [todo.id for todo in todos]
