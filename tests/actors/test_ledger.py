"""The ledger's promises, on a fake store and a clock that jumps: who is run with whom, what each caller hears, what rings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import ledger as ledger_module
from actors.ledger import ANSWER_SECONDS_MAX, BATCH_SECONDS_MAX, WORKERS_PER_LANE, LaneName, Ledger, RingAll
from switchboard.commands import (
    Claimed,
    ClaimNext,
    ClaimOne,
    Command,
    Complete,
    Created,
    CreateTodo,
    Fail,
    Heartbeat,
    Ingest,
    Ingested,
    Moved,
    Outcome,
    Release,
    Undo,
)
from switchboard.errors import BlamesOne, Conflict, Invalid, OutcomeUnknown, RerunWhole, Unavailable
from switchboard.supervisor import contain
from switchboard.todo import Ring, State, Todo

ALICE, BOB = UUID(int=1), UUID(int=2)


class Bug(Exception):
    """What nobody expects of the store."""


def todo_of(endpoint_id: UUID, state: State, **fields: Any) -> Todo:
    """A todo with as little in it as there can be."""
    values: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(Todo))
    values |= {"endpoint_id": endpoint_id, "id": uuid4(), "queue": "work", "source": "api", "state": state}
    return Todo(**(values | {"payload_bytes": 0, "payload_read": True, "attempt": 0, "max_attempts": 5} | fields))


@attrs.define(eq=False)
class Store:
    """A `run_batch` that keeps what it was given, waits at a gate as a thread would, uncancellably, and then does as told."""

    batches: list[tuple[LaneName, list[Command]]] = attrs.field(factory=list)
    gates: dict[LaneName, trio.Event] = attrs.field(factory=dict)
    failures: list[Exception | None] = attrs.field(factory=list)
    poison: set[Command] = attrs.field(factory=set)
    seconds: float = 0
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self, lane: LaneName, commands: Sequence[Command], /) -> list[Outcome]:
        self.batches.append((lane, list(commands)))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        with trio.CancelScope(shield=True):
            if lane in self.gates:
                await self.gates[lane].wait()  # comes back in one step, as a thread does
            elif self.seconds:
                await trio.sleep(self.seconds)
            else:
                await trio.lowlevel.checkpoint()
        self.at_once -= 1
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, OutcomeUnknown):
            raise OutcomeUnknown([outcome_of(command) for command in commands])
        if failure is not None:
            raise failure
        if self.poison & set(commands):
            raise BlamesOne("22003")
        return [outcome_of(command) for command in commands]

    def hold(self, lane: LaneName) -> None:
        """Every batch of this lane waits until `let_go`."""
        self.gates[lane] = trio.Event()

    def let_go(self, lane: LaneName) -> None:
        """The batches of this lane come back, and later ones do not wait."""
        self.gates.pop(lane).set()

    def ran(self, lane: LaneName) -> list[list[Command]]:
        """The batches of one lane, in order."""
        return [commands for name, commands in self.batches if name == lane]

    def undone(self) -> list[UUID | None]:
        """The lease tokens of all claims that were taken back."""
        return [command.lease_token for commands in self.ran("holders") for command in commands if isinstance(command, Undo)]


def outcome_of(command: Command) -> Outcome:
    """What the store would say when all is well."""
    if isinstance(command, CreateTodo):
        return Created(todo=todo_of(command.endpoint_id, "pending", queue=command.queue, title=command.title), created=True)
    if isinstance(command, ClaimNext):
        return Claimed(todos=tuple(_claimed(command.endpoint_id) for _ in range(command.limit)))
    if isinstance(command, ClaimOne):
        return Claimed(todos=(_claimed(command.endpoint_id),))
    if isinstance(command, Complete):
        then = outcome_of(command.then) if command.then is not None else None
        return Moved(todo=todo_of(command.endpoint_id, "done"), then=then if isinstance(then, Claimed) else None)
    if isinstance(command, Ingest):
        return Ingested(targets=())
    state: State = "claimed" if isinstance(command, Heartbeat) else "failed" if isinstance(command, Fail) else "pending"
    return Moved(todo=todo_of(command.endpoint_id, state, id=command.todo_id))


def scope_of(command: Command) -> UUID:
    """The one endpoint of a command that has one."""
    assert not isinstance(command, Ingest)
    return command.endpoint_id


def _claimed(endpoint_id: UUID) -> Todo:
    return todo_of(endpoint_id, "claimed", lease_token=uuid4(), owner="w1")


@attrs.define(eq=False)
class House:
    """A running ledger, its store, and the rings that it has rung."""

    store: Store
    rings: list[Ring]
    ledger: Ledger
    nursery: trio.Nursery

    def ask(self, *commands: Command) -> Caller:
        """A caller of its own for these commands; it is on its way when this returns."""
        caller = Caller(self.ledger, list(commands))
        self.nursery.start_soon(caller.submit)
        return caller


class Caller:
    """One who submits, and what became of it."""

    def __init__(self, ledger: Ledger, commands: list[Command]) -> None:
        self._ledger = ledger
        self._commands = commands
        self.scope = trio.CancelScope()
        self.answered = trio.Event()
        self.outcomes: list[Outcome] = []
        self.refusal: Exception | None = None
        self.took_seconds = 0.0

    async def submit(self) -> None:
        began = trio.current_time()
        with self.scope:
            try:
                self.outcomes = await self._ledger.submit(self._commands)
            except Unavailable as refusal:
                self.refusal = refusal
            self.took_seconds = trio.current_time() - began
            self.answered.set()

    async def outcome(self) -> Outcome:
        """The one outcome of the one command."""
        await self.answered.wait()
        (outcome,) = self.outcomes
        return outcome


def noted_in(rings: list[Ring]) -> RingAll:
    """A bell that notes what rang."""

    def ring(*more: Ring) -> None:
        rings.extend(more)

    return ring


@pytest.fixture
async def house(nursery: trio.Nursery) -> AsyncIterator[House]:
    """A ledger that runs until the test ends."""
    store, rings = Store(), list[Ring]()
    house = House(store=store, rings=rings, ledger=Ledger(run_batch=store, ring=noted_in(rings)), nursery=nursery)
    await nursery.start(house.ledger.run)
    yield house
    for gate in store.gates.values():  # what is held is uncancellable, as a thread is
        gate.set()


def create(endpoint_id: UUID = ALICE, **fields: Any) -> CreateTodo:
    return CreateTodo(endpoint_id=endpoint_id, queue="work", max_attempts=5, **fields)


def claim(endpoint_id: UUID = ALICE, limit: int = 1) -> ClaimNext:
    return ClaimNext(endpoint_id=endpoint_id, owner="w1", lease_seconds=60, limit=limit)


def heartbeat(endpoint_id: UUID = ALICE) -> Heartbeat:
    return Heartbeat(endpoint_id=endpoint_id, todo_id=uuid4(), owner="w1")


async def occupy(house: House, lane: LaneName, make: Callable[[], Command]) -> list[Caller]:
    """Holds every worker of a lane, each with a batch of one; returns their callers."""
    house.store.hold(lane)
    callers = []
    for _ in range(WORKERS_PER_LANE):
        callers.append(house.ask(make()))
        await wait_all_tasks_blocked()
    assert len(house.store.ran(lane)) == WORKERS_PER_LANE
    return callers


# While one batch is with Postgres, the next one gathers.


async def test_a_lone_caller_waits_for_nobody(autojump_clock: MockClock, house: House) -> None:
    """No timers: alone, its command is run at once, in a batch of one."""
    caller = house.ask(create())
    assert isinstance(await caller.outcome(), Created)
    assert caller.took_seconds == 0
    assert [len(batch) for batch in house.store.ran("creates")] == [1]


async def test_those_who_come_meanwhile_share_the_next_batch(autojump_clock: MockClock, house: House) -> None:
    """One transaction for all of them, in the order in which they came; each hears its own outcome."""
    await occupy(house, "creates", create)
    titles = [str(n) for n in range(50)]
    callers = []
    for title in titles:
        callers.append(house.ask(create(title=title)))
        await wait_all_tasks_blocked()
    house.store.let_go("creates")
    outcomes = [await caller.outcome() for caller in callers]
    assert [outcome.todo.title for outcome in outcomes if isinstance(outcome, Created)] == titles
    assert [len(batch) for batch in house.store.ran("creates")] == [1, 1, 50]


async def test_a_batch_of_commands_comes_back_in_order(autojump_clock: MockClock, house: House) -> None:
    """`submit` of many: an outcome for each, where it stood."""
    commands = [create(title=str(n)) for n in range(1_000)]
    caller = house.ask(*commands)
    await caller.answered.wait()
    assert [outcome.todo.title for outcome in caller.outcomes if isinstance(outcome, Created)] == [str(n) for n in range(1_000)]


async def test_a_batch_is_bounded_by_count(autojump_clock: MockClock, house: House) -> None:
    """At most a thousand commands in one transaction; claims count for what they want."""
    await occupy(house, "creates", create)
    await occupy(house, "claims", claim)
    callers = [house.ask(*[create() for _ in range(900)]) for _ in range(3)]
    callers += [house.ask(claim(limit=600)) for _ in range(3)]
    await wait_all_tasks_blocked()
    house.store.let_go("creates")
    house.store.let_go("claims")
    for caller in callers:
        await caller.answered.wait()
    assert [len(batch) for batch in house.store.ran("creates")[WORKERS_PER_LANE:]] == [1_000, 1_000, 700]
    assert [len(batch) for batch in house.store.ran("claims")[WORKERS_PER_LANE:]] == [1, 1, 1]


async def test_a_batch_is_bounded_by_bytes(autojump_clock: MockClock, house: House) -> None:
    """Payloads and results of one transaction stay within 16 MiB or so, and one that is larger goes alone."""
    await occupy(house, "creates", create)
    await occupy(house, "holders", heartbeat)
    payload = "x" * (4 << 20)
    callers = [
        house.ask(*[create(payload=payload) for _ in range(7)], create(payload=payload * 5)),
        house.ask(*[Complete(endpoint_id=ALICE, todo_id=uuid4(), result=payload) for _ in range(4)]),
    ]
    await wait_all_tasks_blocked()
    house.store.let_go("creates")
    house.store.let_go("holders")
    for caller in callers:
        await caller.answered.wait()
    assert sorted(len(batch) for batch in house.store.ran("creates")[WORKERS_PER_LANE:]) == [1, 1, 3, 3]
    assert sorted(len(batch) for batch in house.store.ran("holders")[WORKERS_PER_LANE:]) == [1, 3]


async def test_no_endpoint_fills_a_batch_while_another_waits(autojump_clock: MockClock, house: House) -> None:
    """Bob's one create is in the very next batch, however many thousand of Alice's were there before it."""
    await occupy(house, "creates", create)
    house.ask(*[create(ALICE) for _ in range(5_000)])
    await wait_all_tasks_blocked()
    bob = house.ask(create(BOB))
    await wait_all_tasks_blocked()
    house.store.let_go("creates")
    await bob.outcome()
    first = house.store.ran("creates")[WORKERS_PER_LANE]
    assert [scope_of(command) for command in first].count(BOB) == 1
    assert len(first) == 1_000


async def test_a_lane_has_a_few_workers(autojump_clock: MockClock, house: House) -> None:
    """So that one lock does not stop it; and no more, so that batches gather."""
    house.store.hold("claims")
    for _ in range(10):
        house.ask(claim())
        await wait_all_tasks_blocked()
    assert house.store.most_at_once == WORKERS_PER_LANE


# Lanes are split by kind, and do not wait for one another.


async def test_heartbeats_do_not_wait_for_claims(autojump_clock: MockClock, house: House) -> None:
    """C43: with both workers of the claims stuck, a heartbeat, a finish and a create take no time."""
    await occupy(house, "claims", claim)
    house.ask(claim())
    verbs: list[Command] = [
        heartbeat(),
        Complete(endpoint_id=ALICE, todo_id=uuid4()),
        Fail(endpoint_id=ALICE, todo_id=uuid4()),
        Release(endpoint_id=ALICE, todo_id=uuid4()),
        create(),
    ]
    for verb in verbs:
        caller = house.ask(verb)
        await caller.answered.wait()
        assert caller.took_seconds == 0


async def test_claims_do_not_wait_for_creates_or_holders(autojump_clock: MockClock, house: House) -> None:
    """Nor the other way round."""
    await occupy(house, "creates", create)
    await occupy(house, "holders", heartbeat)
    assert isinstance(await house.ask(claim()).outcome(), Claimed)


async def test_a_claim_by_id_is_a_claim(autojump_clock: MockClock, house: House) -> None:
    """Both kinds share a lane, a batch and its lock."""
    await occupy(house, "claims", claim)
    one = ClaimOne(endpoint_id=ALICE, todo_id=uuid4(), owner="w1", lease_seconds=60)
    callers = [house.ask(one), house.ask(claim())]
    await wait_all_tasks_blocked()
    house.store.let_go("claims")
    for caller in callers:
        await caller.outcome()
    assert one in house.store.ran("claims")[-1]


# A batch is taken apart only for errors that blame one command.


async def test_the_one_to_blame_is_refused_and_the_others_go_through(autojump_clock: MockClock, house: House) -> None:
    """Each is run alone, in order; 422 for the one, outcomes for the rest."""
    await occupy(house, "creates", create)
    commands = [create(title=str(n)) for n in range(5)]
    house.store.poison = {commands[2]}
    callers = []
    for command in commands:
        callers.append(house.ask(command))
        await wait_all_tasks_blocked()
    house.store.let_go("creates")
    outcomes = [await caller.outcome() for caller in callers]
    assert [type(outcome) for outcome in outcomes] == [Created, Created, Invalid, Created, Created]
    assert [len(batch) for batch in house.store.ran("creates")[WORKERS_PER_LANE:]] == [5, 1, 1, 1, 1, 1]
    assert [batch[0] for batch in house.store.ran("creates")[WORKERS_PER_LANE + 1 :]] == commands


async def test_one_alone_is_not_run_again(autojump_clock: MockClock, house: House) -> None:
    """A batch of one that is to blame has been heard."""
    command = create()
    house.store.poison = {command}
    outcome = await house.ask(command).outcome()
    assert isinstance(outcome, Invalid)
    assert (outcome.status, outcome.code) == (422, "invalid")
    assert len(house.store.batches) == 1


@pytest.mark.parametrize("failure", [Unavailable(detail="away"), RerunWhole("40P01"), OutcomeUnknown(None)])
async def test_nothing_else_takes_a_batch_apart(autojump_clock: MockClock, house: House, failure: Exception) -> None:
    """An outage, a deadlock and a lost COMMIT blame nobody: whatever is run again is the whole batch."""
    house.store.failures = [failure, failure]
    caller = house.ask(*[create() for _ in range(20)])
    await caller.answered.wait()
    assert {len(batch) for batch in house.store.ran("creates")} == {20}
    assert len(house.store.batches) == (2 if isinstance(failure, RerunWhole) else 1)


async def test_it_ends_at_the_batchs_deadline(autojump_clock: MockClock, house: House) -> None:
    """A take-apart on a database that has become slow does not hold its lane: the rest is 503."""
    commands = [create(title=str(n)) for n in range(6)]
    house.store.poison = {commands[0]}
    house.store.seconds = 1.5
    caller = house.ask(*commands)
    await caller.answered.wait()
    kinds = [type(outcome) for outcome in caller.outcomes]
    assert kinds == [Invalid, Created, Created, Created, Created, Unavailable]
    assert BATCH_SECONDS_MAX < caller.took_seconds < ANSWER_SECONDS_MAX


async def test_what_it_did_before_a_bug_is_undone(autojump_clock: MockClock, house: House, nursery: trio.Nursery) -> None:
    """R15: claims that had committed one by one when a later one hit a bug belong to nobody."""
    store = Store(failures=[BlamesOne("22003"), None, Bug()])
    ledger = Ledger(run_batch=store, ring=noted_in(house.rings))
    caller = Caller(ledger, [claim(), claim(), claim()])
    nursery.start_soon(caller.submit)
    await fails(ledger)
    await caller.answered.wait()
    await nursery.start(ledger.run)
    await wait_all_tasks_blocked()
    assert len(store.undone()) == 1


# What each caller hears when the database fails.


async def test_a_deadlock_reruns_the_whole_batch_once(autojump_clock: MockClock, house: House) -> None:
    """The second run is good: nobody hears of the first."""
    house.store.failures = [RerunWhole("40P01")]
    caller = house.ask(*[create() for _ in range(3)])
    await caller.answered.wait()
    assert [type(outcome) for outcome in caller.outcomes] == [Created] * 3
    first, second = house.store.ran("creates")
    assert first == second


async def test_a_second_deadlock_is_503(autojump_clock: MockClock, house: House) -> None:
    """Once, not for ever; nothing happened, so nothing is unknown."""
    house.store.failures = [RerunWhole("40P01"), RerunWhole("40001"), Bug()]
    outcome = await house.ask(create()).outcome()
    assert isinstance(outcome, Unavailable)
    assert not outcome.outcome_unknown
    assert len(house.store.batches) == 2


async def test_a_rerun_that_blames_one_is_taken_apart(autojump_clock: MockClock, house: House) -> None:
    """The two answers to a failure follow each other."""
    commands = [create(title="a"), create(title="b")]
    house.store.failures = [RerunWhole("40P01")]
    house.store.poison = {commands[0]}
    caller = house.ask(*commands)
    await caller.answered.wait()
    assert [type(outcome) for outcome in caller.outcomes] == [Invalid, Created]


async def test_an_outage_is_503_to_all_of_the_batch(autojump_clock: MockClock, house: House) -> None:
    """Every caller of it, and only of it: the next batch is run."""
    await occupy(house, "creates", create)
    callers = [house.ask(create()) for _ in range(10)]
    await wait_all_tasks_blocked()
    house.store.failures = [None] * WORKERS_PER_LANE + [Unavailable(detail="away")]
    house.store.let_go("creates")
    for caller in callers:
        outcome = await caller.outcome()
        assert isinstance(outcome, Unavailable)
        assert outcome.retry_after_seconds >= 1
    assert isinstance(await house.ask(create()).outcome(), Created)


async def test_a_lost_commit_is_503_to_all_and_its_claims_are_undone(autojump_clock: MockClock, house: House) -> None:
    """R32, R15: nobody knows; nothing is run again; what stands if it did happen is taken back by its tokens."""
    house.store.failures = [OutcomeUnknown(None)]
    caller = house.ask(claim(limit=3), claim(BOB, limit=2))
    await caller.answered.wait()
    for outcome in caller.outcomes:
        assert isinstance(outcome, Unavailable)
        assert outcome.outcome_unknown
    await wait_all_tasks_blocked()
    assert len(house.store.ran("claims")) == 1
    assert len(set(house.store.undone())) == 5


async def test_a_lost_commit_of_a_completion_undoes_its_next(autojump_clock: MockClock, house: House) -> None:
    """R32: the completion may stand, and its caller repeats it; the next claim was heard of by nobody."""
    house.store.failures = [OutcomeUnknown(None)]
    caller = house.ask(Complete(endpoint_id=ALICE, todo_id=uuid4(), then=claim()))
    await caller.answered.wait()
    await wait_all_tasks_blocked()
    assert len(house.store.undone()) == 1


async def test_an_error_of_one_command_is_its_own(autojump_clock: MockClock, house: House) -> None:
    """`submit` returns it in its place, `submit_one` raises it."""

    async def refuses(_lane: LaneName, commands: Sequence[Command], /) -> list[Outcome]:
        await trio.lowlevel.checkpoint()
        return [Conflict(detail="no", state="done") for _ in commands]

    ledger = Ledger(run_batch=refuses, ring=noted_in(house.rings))
    await house.nursery.start(ledger.run)
    (outcome,) = await ledger.submit([heartbeat()])
    assert isinstance(outcome, Conflict)
    with pytest.raises(Conflict):
        await ledger.submit_one(heartbeat())


async def test_a_bug_answers_its_callers_and_ends_the_actor(
    autojump_clock: MockClock, house: House, nursery: trio.Nursery
) -> None:
    """Nobody waits for what will not come: 503, unknown; the supervisor restarts it, and what waited is served then."""
    store = Store(failures=[Bug()])
    ledger = Ledger(run_batch=store, ring=noted_in(house.rings))
    first = Caller(ledger, [create(title="first")])
    second = Caller(ledger, [heartbeat()])
    nursery.start_soon(first.submit)
    await fails(ledger)
    await first.answered.wait()
    assert [type(outcome) for outcome in first.outcomes] == [Unavailable]
    nursery.start_soon(second.submit)
    await wait_all_tasks_blocked()
    assert not second.answered.is_set()
    await nursery.start(ledger.run)
    await second.answered.wait()
    assert [type(outcome) for outcome in second.outcomes] == [Moved]


async def test_a_batch_under_way_when_the_actor_ends_is_answered(autojump_clock: MockClock) -> None:
    """The house closes: a thread cannot be cancelled, its batch commits, and its callers hear of it."""
    store = Store(seconds=1)
    ledger = Ledger(run_batch=store, ring=lambda *_rings: None)
    caller = Caller(ledger, [create()])
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as actor:
            await actor.start(ledger.run)
            nursery.start_soon(caller.submit)
            await wait_all_tasks_blocked()
            actor.cancel_scope.cancel()
        await caller.answered.wait()
    assert [type(outcome) for outcome in caller.outcomes] == [Created]


async def fails(ledger: Ledger) -> None:
    """Runs the actor until its bug ends it."""
    failures: list[Exception] = []
    await contain(ledger.run, failed=failures.append)
    assert [type(failure) for failure in failures] == [Bug]


# R15: a caller that goes away is forgotten, and nothing of its is left behind.


async def test_what_has_not_started_is_never_run(autojump_clock: MockClock, house: House) -> None:
    """Cancelled while it gathers: its command reaches no batch, the others' do."""
    await occupy(house, "claims", claim)
    gone, stays = house.ask(claim(ALICE, limit=7)), house.ask(claim(BOB))
    await wait_all_tasks_blocked()
    gone.scope.cancel()
    await wait_all_tasks_blocked()
    house.store.let_go("claims")
    await stays.outcome()
    assert [[scope_of(command) for command in batch] for batch in house.store.ran("claims")][-1] == [BOB]
    assert house.store.undone() == []


async def test_a_claim_in_flight_is_undone_and_rung(autojump_clock: MockClock, house: House) -> None:
    """Cancelled while it is with Postgres: it commits, is taken back by its token, counted, and rings once."""
    house.store.hold("claims")
    gone = house.ask(claim(limit=3))
    await wait_all_tasks_blocked()
    gone.scope.cancel()
    await wait_all_tasks_blocked()
    assert house.store.undone() == []
    assert house.rings == []
    house.store.let_go("claims")
    await wait_all_tasks_blocked()
    assert len(set(house.store.undone())) == 3
    assert house.ledger.undone_claims == 3
    assert len(house.rings) == 3


async def test_others_of_the_same_batch_keep_theirs(autojump_clock: MockClock, house: House) -> None:
    """Only what nobody hears of is undone."""
    await occupy(house, "claims", claim)
    gone, stays = house.ask(claim()), house.ask(claim())
    await wait_all_tasks_blocked()
    house.store.let_go("claims")
    house.store.hold("claims")
    await wait_all_tasks_blocked()
    assert len(house.store.ran("claims")[-1]) == 2
    gone.scope.cancel()
    await wait_all_tasks_blocked()
    house.store.let_go("claims")
    kept = await stays.outcome()
    await wait_all_tasks_blocked()
    assert isinstance(kept, Claimed)
    assert len(house.store.undone()) == 1
    assert kept.todos[0].lease_token not in house.store.undone()


async def test_the_very_moment_of_the_answer(autojump_clock: MockClock, house: House) -> None:
    """Cancelled and answered in one step of the scheduler, in either order: heard of or undone, never neither."""
    for _ in range(60):
        house.store.hold("claims")
        caller = house.ask(claim())
        await wait_all_tasks_blocked()
        undone = len(house.store.undone())
        house.store.let_go("claims")
        caller.scope.cancel()
        await wait_all_tasks_blocked()
        assert bool(caller.outcomes) + len(house.store.undone()) - undone == 1


async def test_the_next_of_a_completion_is_undone(autojump_clock: MockClock, house: House) -> None:
    """The completion stands; the claim that came with it goes back."""
    house.store.hold("holders")
    gone = house.ask(Complete(endpoint_id=ALICE, todo_id=uuid4(), then=claim()))
    await wait_all_tasks_blocked()
    gone.scope.cancel()
    await wait_all_tasks_blocked()
    house.store.let_go("holders")
    await wait_all_tasks_blocked()
    assert len(house.store.undone()) == 1


async def test_creates_and_finishes_of_one_who_went_stand(autojump_clock: MockClock, house: House) -> None:
    """Callers repeat those safely (R32): they are not taken back, and a create still rings."""
    for lane, command in (("creates", create()), ("holders", Complete(endpoint_id=ALICE, todo_id=uuid4()))):
        name: LaneName = "creates" if lane == "creates" else "holders"
        house.store.hold(name)
        gone = house.ask(command)
        await wait_all_tasks_blocked()
        gone.scope.cancel()
        await wait_all_tasks_blocked()
        house.store.let_go(name)
        await wait_all_tasks_blocked()
    assert house.store.undone() == []
    assert len(house.rings) == 1


async def test_the_answer_has_a_deadline(autojump_clock: MockClock, house: House) -> None:
    """503 after ten seconds, not later; the claim that commits all the same is undone."""
    house.store.hold("claims")
    caller = house.ask(claim())
    await caller.answered.wait()
    assert caller.took_seconds == pytest.approx(ANSWER_SECONDS_MAX)
    assert isinstance(caller.refusal, Unavailable)
    assert caller.refusal.outcome_unknown
    house.store.let_go("claims")
    await wait_all_tasks_blocked()
    assert len(house.store.undone()) == 1


async def test_each_has_the_whole_of_it(autojump_clock: MockClock, house: House) -> None:
    """One timer serves all who wait: whoever came later is ended later, and one who has gone holds up nobody."""
    house.store.hold("claims")
    callers = []
    for _ in range(3):
        callers.append(house.ask(claim()))
        await trio.sleep(4)
    for caller in callers:
        await caller.answered.wait()
        assert caller.took_seconds == pytest.approx(ANSWER_SECONDS_MAX)
    house.store.let_go("claims")


async def test_the_deadline_covers_waiting_too(autojump_clock: MockClock, house: House) -> None:
    """Behind batches that do not come back a caller waits no longer; its command is never run then."""
    await occupy(house, "claims", claim)
    caller = house.ask(claim(limit=9))
    await caller.answered.wait()
    assert caller.took_seconds == pytest.approx(ANSWER_SECONDS_MAX)
    house.store.let_go("claims")
    await wait_all_tasks_blocked()
    assert all(command != claim(limit=9) for batch in house.store.ran("claims") for command in batch)


async def test_an_answer_that_reached_nobody_is_taken_back_from_outside(autojump_clock: MockClock, house: House) -> None:
    """`undo`: what the front door calls when the socket was gone; it never waits."""
    outcome = await house.ask(claim(limit=2)).outcome()
    assert isinstance(outcome, Claimed)
    house.ledger.undo(outcome.todos)
    await wait_all_tasks_blocked()
    assert house.store.undone() == [todo.lease_token for todo in outcome.todos]
    assert [ring.todo_id for ring in house.rings] == [todo.id for todo in outcome.todos]


async def test_an_undo_that_fails_is_told(autojump_clock: MockClock, house: House) -> None:
    """With the database away the claim is left to its lease, and the operator hears of it."""
    with capture_logs() as logs:
        house.store.failures = [Unavailable(detail="away")]
        lost = _claimed(ALICE)
        house.ledger.undo([lost])
        await wait_all_tasks_blocked()
    assert [(line["event"], line["todo_id"]) for line in logs] == [("claim_left_to_its_lease", str(lost.id))]
    assert house.ledger.undone_claims == 0
    assert house.rings == []


# A limit on everything.


async def test_a_full_lane_is_503_at_once(autojump_clock: MockClock, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only that lane; what was there before is served."""
    monkeypatch.setattr(ledger_module, "WAITING_COMMANDS_MAX", 10)
    await occupy(house, "creates", create)
    waiting = house.ask(*[create() for _ in range(8)])
    await wait_all_tasks_blocked()
    refused = house.ask(*[create() for _ in range(3)])
    await refused.answered.wait()
    assert isinstance(refused.refusal, Unavailable)
    assert not refused.refusal.outcome_unknown
    assert refused.took_seconds == 0
    fits = house.ask(create(), create())
    assert isinstance(await house.ask(claim()).outcome(), Claimed)
    house.store.let_go("creates")
    await waiting.answered.wait()
    await fits.answered.wait()
    assert len(waiting.outcomes) == 8
    assert len(fits.outcomes) == 2


async def test_an_undo_that_finds_the_lane_full_is_left_to_the_lease(
    autojump_clock: MockClock, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never waits and never grows the queue."""
    await occupy(house, "holders", heartbeat)
    monkeypatch.setattr(ledger_module, "WAITING_COMMANDS_MAX", 3)
    house.ledger.undo([_claimed(ALICE) for _ in range(5)])
    house.store.let_go("holders")
    await wait_all_tasks_blocked()
    assert len(house.store.undone()) == 3


# R25: once for each transition to pending, after its commit.


async def test_a_create_rings_after_its_commit(autojump_clock: MockClock, house: House) -> None:
    """Never while the transaction is under way; with the todo's endpoint, queue and id."""
    house.store.hold("creates")
    caller = house.ask(create(BOB))
    await wait_all_tasks_blocked()
    assert house.rings == []
    house.store.let_go("creates")
    outcome = await caller.outcome()
    assert isinstance(outcome, Created)
    (ring,) = house.rings
    assert (ring.endpoint_id, ring.queue, ring.todo_id) == (BOB, "work", outcome.todo.id)


async def test_the_ring_comes_before_the_caller_goes_on(autojump_clock: MockClock, house: House) -> None:
    """Whoever was told of a todo can rely on its ring being on its way."""
    await house.ledger.submit([create()])
    assert len(house.rings) == 1


async def test_what_did_not_commit_does_not_ring(autojump_clock: MockClock, house: House) -> None:
    """An outage, a refusal, a lost COMMIT."""
    for failure in (Unavailable(detail="away"), OutcomeUnknown(None), BlamesOne("22003")):
        house.store.failures = [failure]
        await house.ask(create()).answered.wait()
    assert house.rings == []


async def test_a_rerun_and_a_take_apart_ring_once_each(autojump_clock: MockClock, house: House) -> None:
    """However often a command was run, it came to pending once."""
    commands = [create(title="a"), create(title="b")]
    house.store.failures = [RerunWhole("40P01"), BlamesOne("22003")]
    caller = house.ask(*commands)
    await caller.answered.wait()
    assert len(house.store.batches) == 4
    assert len(house.rings) == 2


async def test_only_transitions_to_pending_ring(autojump_clock: MockClock, house: House) -> None:
    """A release does; claims, heartbeats, ends and live twins do not."""
    house.store.failures = []
    for command in (
        claim(),
        heartbeat(),
        Complete(endpoint_id=ALICE, todo_id=uuid4(), then=claim()),
        Fail(endpoint_id=ALICE, todo_id=uuid4()),
    ):
        await house.ask(command).outcome()
    assert house.rings == []
    release = Release(endpoint_id=ALICE, todo_id=uuid4())
    await house.ask(release).outcome()
    assert [ring.todo_id for ring in house.rings] == [release.todo_id]


async def test_a_release_at_the_cap_and_a_live_twin_do_not(autojump_clock: MockClock, house: House) -> None:
    """What did not become pending by this command is nobody's to claim because of it."""

    async def store(_lane: LaneName, commands: Sequence[Command], /) -> list[Outcome]:
        await trio.lowlevel.checkpoint()
        return [
            Created(todo=todo_of(ALICE, "pending"), created=False)
            if isinstance(command, CreateTodo)
            else Moved(todo=todo_of(ALICE, "failed"))
            for command in commands
        ]

    ledger = Ledger(run_batch=store, ring=noted_in(house.rings))
    await house.nursery.start(ledger.run)
    await ledger.submit([create()])
    await ledger.submit([Release(endpoint_id=ALICE, todo_id=uuid4())])
    assert house.rings == []
