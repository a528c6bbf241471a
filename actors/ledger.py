"""The ledger: many callers, one commit.

Callers put commands into a lane and wait for their own outcomes; a lane's workers gather what waits, run it as one
transaction in one thread, and answer each caller after the commit, never before. While one batch is with Postgres the next
one gathers: no timers, so a lone caller pays nothing.

Lanes are split by kind, so that a heartbeat never waits behind a claim, nor a create behind what a broker sends; each has
a few workers, so that one lock does not stop it. A batch is taken apart, and its commands run one by one, only for errors
that blame one command; a deadlock or a serialisation failure reruns it whole, once; anything else is 503 to all of it. One
deadline covers all that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable, Sequence
from typing import Final, Literal, Protocol, get_args

import attrs
import structlog
import trio

from switchboard.commands import (
    Claimed,
    ClaimNext,
    ClaimOne,
    Command,
    Complete,
    CreateTodo,
    Ingest,
    Moved,
    Outcome,
    Undo,
    claims_in,
    rings_of,
    undo_of,
)
from switchboard.errors import BlamesOne, Invalid, OutcomeUnknown, QueueError, RerunWhole, Unavailable, Unstorable
from switchboard.fair_queue import FairQueue
from switchboard.todo import Ring, Todo

LaneName = Literal["creates", "ingests", "claims", "holders"]

WORKERS_PER_LANE: Final = 2
BATCH_WEIGHT_MAX: Final = 1_000
WEIGHT_PAYLOAD_BYTES: Final = 16 * 1024
"""A command weighs one, or one for each so many bytes of its payload: a batch carries at most 16 MiB of them."""
WAITING_COMMANDS_MAX: Final = 20_000
ANSWER_SECONDS_MAX: Final = 10.0
"""How long a caller waits for its outcome. The command may still be run after that; a claim is then undone (R15)."""
BATCH_SECONDS_MAX: Final = 8.0

_log = structlog.get_logger("ledger")


class RunBatch(Protocol):
    """Runs commands of one lane as one transaction: an outcome for each, in order, after the commit."""

    def __call__(self, lane: LaneName, commands: Sequence[Command], /) -> Awaitable[list[Outcome]]: ...


class RingAll(Protocol):
    """Announces todos that became pending, after their commit. Never waits, never fails."""

    def __call__(self, *rings: Ring) -> None: ...


@attrs.define(eq=False)
class _Answer:
    """What one caller waits for: an outcome for each of its commands."""

    outcomes: list[Outcome | None]
    missing: int
    due: float = 0.0
    complete: trio.Event = attrs.field(factory=trio.Event)
    abandoned: bool = False


@attrs.frozen(eq=False)
class _Entry:
    """One command on its way, and the place in its caller's answer that it fills."""

    command: Command
    answer: _Answer
    place: int


class _Lane:
    """One kind's queue, and the bell that wakes its workers."""

    def __init__(self, name: LaneName) -> None:
        self.name = name
        self.waiting: FairQueue[_Entry] = FairQueue()
        self.parked = trio.lowlevel.ParkingLot()

    def put(self, *entries: _Entry) -> None:
        for entry in entries:
            self.waiting.put(_fairness_key(entry.command), _weight(entry.command), entry)
        self.parked.unpark(count=len(entries))


def _weight(command: Command) -> int:
    if isinstance(command, ClaimNext):
        return command.limit
    if isinstance(command, Ingest):
        # Its body goes in beside its payload, once for each endpoint.
        body = command.delivery.body
        payload = body if command.payload is None else command.payload
        each = 1 + (len(body) + len(payload)) // (2 * WEIGHT_PAYLOAD_BYTES)
        return each * len(command.endpoint_ids)
    text = command.payload if isinstance(command, CreateTodo) else command.result if isinstance(command, Complete) else None
    return 1 if text is None else 1 + len(text) // WEIGHT_PAYLOAD_BYTES


def _fairness_key(command: Command) -> Hashable:
    """Whose turn it is: an endpoint's, or for what comes in from outside, the adapter's."""
    if isinstance(command, Ingest):
        return command.delivery.origin.adapter or command.endpoint_ids
    return command.endpoint_id


def _lane_of(command: Command) -> LaneName:
    if isinstance(command, CreateTodo):
        return "creates"
    if isinstance(command, Ingest):
        return "ingests"
    if isinstance(command, ClaimNext | ClaimOne):
        return "claims"
    return "holders"


class Ledger:
    """The channel between callers and the store: `submit` on one side, `run` on the other."""

    def __init__(self, *, run_batch: RunBatch, ring: RingAll) -> None:
        self._run_batch = run_batch
        self._ring = ring
        self._lanes: dict[LaneName, _Lane] = {name: _Lane(name) for name in get_args(LaneName)}
        # Those who wait, in the order in which their time is up: it is the same for all.
        self._asking: dict[_Answer, None] = {}
        self.undone_claims = 0

    async def submit(self, commands: Sequence[Command]) -> list[Outcome]:
        """An outcome for each command, in order. All of them are of one lane.

        A caller that goes away, or has waited `ANSWER_SECONDS_MAX`, is forgotten: what it has not started is never run,
        and a claim that commits all the same is undone (R15).

        Raises:
            Unavailable: the lane is full, or no answer came in time.
        """
        lane = self._lanes[_lane_of(commands[0])]
        if len(lane.waiting) + len(commands) > WAITING_COMMANDS_MAX:
            raise Unavailable(detail="Too many requests are waiting for the database. Try again.")
        due = trio.current_time() + ANSWER_SECONDS_MAX
        answer = _Answer(outcomes=[None] * len(commands), missing=len(commands), due=due)
        self._asking[answer] = None
        lane.put(*[_Entry(command, answer, place) for place, command in enumerate(commands)])
        gone = True
        try:
            await answer.complete.wait()
            gone = False
        finally:
            del self._asking[answer]
            # Gone counts also when the last outcome came in the very moment in which the caller was cancelled: it is
            # here, and nobody will hear of it.
            if gone or answer.missing:
                self._abandon(answer)
        if answer.abandoned:
            raise Unavailable(detail="The database was too slow to answer. Try again.", outcome_unknown=True)
        return [outcome for outcome in answer.outcomes if outcome is not None]

    async def submit_one(self, command: Command) -> Outcome:
        """The outcome of one command; one that is an error is raised."""
        (outcome,) = await self.submit([command])
        if isinstance(outcome, QueueError):
            raise outcome
        return outcome

    def undo(self, todos: Sequence[Todo]) -> None:
        """Takes claims back whose answer never reached its caller (R15). Never waits.

        With the lane full, or the database away, they are left to their leases, which end them as a crash would.
        """
        lane = self._lanes["holders"]
        for todo in todos:
            command = undo_of(todo)
            if len(lane.waiting) >= WAITING_COMMANDS_MAX:
                self._note_undo(command, Unavailable(detail="The lane is full."))
            else:
                lane.put(_Entry(command, _Answer(outcomes=[None], missing=1), 0))

    def _note_undo(self, command: Undo, outcome: Outcome) -> None:
        place = {"todo_id": str(command.todo_id), "endpoint_id": str(command.endpoint_id)}
        if isinstance(outcome, Moved):
            self.undone_claims += 1
            _log.info("claim_undone", **place)
        elif isinstance(outcome, Unavailable):
            _log.warning("claim_left_to_its_lease", reason=outcome.detail, **place)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor: the workers of all lanes. Waits for nothing but commands; ends only by cancellation."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_long_waits)
            for lane in self._lanes.values():
                for _ in range(WORKERS_PER_LANE):
                    nursery.start_soon(self._work, lane)
            task_status.started()

    async def _end_long_waits(self) -> None:
        """Ends the waits whose time is up: one timer for all of them, since a timer each is a tenth of a request's cost."""
        while True:
            now = trio.current_time()
            due = next((answer.due for answer in self._asking), now + ANSWER_SECONDS_MAX)
            if due > now:
                await trio.sleep_until(due)  # whoever begins to wait meanwhile is due later
                continue
            for answer in self._asking:
                if answer.due > now:
                    break
                answer.complete.set()
            await trio.lowlevel.checkpoint()

    async def _work(self, lane: _Lane) -> None:
        while True:
            while not lane.waiting:
                await lane.parked.park()
            batch = [entry for entry in lane.waiting.gather(BATCH_WEIGHT_MAX) if not entry.answer.abandoned]
            if batch:
                await self._serve(lane.name, batch)
            await trio.lowlevel.checkpoint()

    async def _serve(self, lane: LaneName, batch: Sequence[_Entry]) -> None:
        deadline = trio.current_time() + BATCH_SECONDS_MAX
        unanswered = list(batch)
        try:
            commands = [entry.command for entry in batch]
            outcomes = await self._outcomes(lane, commands, deadline)
            # After the commit, and all of a batch together: a ring for each todo by itself costs a listener's throughput.
            rings = [ring for command, outcome in zip(commands, outcomes, strict=True) for ring in rings_of(command, outcome)]
            if rings:
                self._ring(*rings)
            for outcome in outcomes:
                self._answer(unanswered.pop(0), outcome)
        finally:
            # Only a bug or the end of the house gets here with anything left: no caller waits for what will not come.
            for entry in unanswered:
                self._answer(entry, Unavailable(detail="This was interrupted. Try again.", outcome_unknown=True))

    async def _outcomes(self, lane: LaneName, commands: Sequence[Command], deadline: float) -> list[Outcome]:
        """The outcomes of a batch, whatever happens to it."""
        try:
            return await self._attempt(lane, commands)
        except BlamesOne as blame:
            if len(commands) == 1:
                _log.warning("command_refused_by_database", lane=lane, reason=str(blame))
                if isinstance(commands[0], Ingest):  # its adapter keeps count, and tells the operator why (R23)
                    return [Unstorable(detail=str(blame))]
                return [Invalid(detail="The database cannot store this.")]
            return await self._take_apart(lane, commands, deadline)

    async def _attempt(self, lane: LaneName, commands: Sequence[Command]) -> list[Outcome]:
        try:
            try:
                return await self._run_batch(lane, commands)
            except RerunWhole:
                return await self._run_batch(lane, commands)
        except RerunWhole:
            again = Unavailable(detail="Too many callers change the same todos at once. Try again.")
            return [again] * len(commands)
        except Unavailable as away:
            return [away] * len(commands)
        except OutcomeUnknown as lost:
            if isinstance(lost.result, list):
                self._undo_unheard(lost.result)
            unknown = Unavailable(detail="The connection to the database was lost at commit. Try again.", outcome_unknown=True)
            return [unknown] * len(commands)

    async def _take_apart(self, lane: LaneName, commands: Sequence[Command], deadline: float) -> list[Outcome]:
        """Runs each command alone: nothing of the batch has happened, and only one of them is to blame."""
        outcomes: list[Outcome] = []
        try:
            for command in commands:
                if trio.current_time() > deadline:
                    outcomes.append(Unavailable(detail="The database was too slow to answer. Try again."))
                else:
                    outcomes += await self._outcomes(lane, [command], deadline)
        finally:
            # Each of them has committed on its own; after a bug in a later one nobody will hear of them.
            if len(outcomes) < len(commands):
                self._undo_unheard(outcomes)
        return outcomes

    def _answer(self, entry: _Entry, outcome: Outcome) -> None:
        """Hands an outcome over, after its commit; undoes a claim that nobody waits for any more."""
        if isinstance(entry.command, Undo):
            self._note_undo(entry.command, outcome)
        answer = entry.answer
        if answer.abandoned:
            self.undo(claims_in(outcome))
            return
        answer.outcomes[entry.place] = outcome
        answer.missing -= 1
        if not answer.missing:
            answer.complete.set()

    def _abandon(self, answer: _Answer) -> None:
        answer.abandoned = True
        self._undo_unheard([outcome for outcome in answer.outcomes if outcome is not None])

    def _undo_unheard(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Claimed | Moved):
                self.undo(claims_in(outcome))
