"""How often a claim that waits asks the database: once when it comes, once for each wake, and not at all where all is known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from switchboard.commands import Claimed, Command, Outcome
from switchboard.endpoint import Endpoint
from switchboard.http.agent_claims import AgentClaims
from switchboard.http.agent_todos import Defaults
from switchboard.http.call import Call, Reply
from switchboard.http.requests import ClaimBody, NoQuery
from switchboard.http.wire import TodosReply
from switchboard.todo import Ring
from switchboard.waiting_room import QUIET_SECONDS_MAX, WaitingRoom

ALICE = Endpoint(id=UUID(int=1), name="alice", created_at=datetime.now(UTC))


@attrs.define(eq=False)
class EmptyQueue:
    """A ledger behind which there is never any work. It counts."""

    asked: int = 0
    hold: trio.Event | None = None

    async def submit(self, commands: Sequence[Command]) -> list[Outcome]:
        """Nothing."""
        return [await self.submit_one(command) for command in commands]

    async def submit_one(self, _command: Command) -> Outcome:
        """Nothing."""
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if self.hold is not None:
            await self.hold.wait()
        return Claimed()


@pytest.fixture
def room() -> WaitingRoom:
    return WaitingRoom()


@pytest.fixture
def queue() -> EmptyQueue:
    return EmptyQueue()


@pytest.fixture
def claims(room: WaitingRoom, queue: EmptyQueue) -> AgentClaims:
    return AgentClaims(ledger=queue, defaults=Defaults(lease_seconds=1, max_attempts=1, payload_bytes=1), room=room)


def call(wait_seconds: float) -> Call[ClaimBody, NoQuery]:
    return Call(path={}, body=ClaimBody(queue="work", wait_seconds=wait_seconds), query=NoQuery(), caller=ALICE)


def ring() -> Ring:
    return Ring(endpoint_id=ALICE.id, queue="work", todo_id=uuid4(), kind=None, source="api", assignee=None)


async def waits(claims: AgentClaims, wait_seconds: float) -> float:
    """How long a claim that finds nothing took."""
    began = trio.current_time()
    reply: Reply = await claims.claim(call(wait_seconds))
    assert reply.content == TodosReply(todos=[])
    return trio.current_time() - began


async def test_it_asks_once_when_it_comes_and_once_for_each_wake(
    autojump_clock: MockClock, nursery: trio.Nursery, claims: AgentClaims, room: WaitingRoom, queue: EmptyQueue
) -> None:
    """Somebody else was faster each time: it goes on waiting, and does not ask over and over."""

    async def ring_thrice() -> None:
        for _ in range(3):
            await trio.sleep(1)
            room.ring(ring())

    nursery.start_soon(ring_thrice)
    assert await waits(claims, 10) == pytest.approx(10)
    assert queue.asked == 4


async def test_a_ring_while_it_asks_makes_it_ask_again(
    autojump_clock: MockClock, nursery: trio.Nursery, claims: AgentClaims, room: WaitingRoom, queue: EmptyQueue
) -> None:
    """Its look may have been before that commit; also when it was woken already."""
    queue.hold = trio.Event()
    nursery.start_soon(waits, claims, 10)
    for asked in (1, 2, 3):
        await wait_all_tasks_blocked()
        assert queue.asked == asked
        room.ring(ring())
        queue.hold.set()
        queue.hold = trio.Event()
    queue.hold.set()


async def test_in_a_line_that_is_known_to_be_quiet_it_does_not_ask(
    autojump_clock: MockClock, nursery: trio.Nursery, claims: AgentClaims, room: WaitingRoom, queue: EmptyQueue
) -> None:
    """performance.md shape 8: of ten thousand who ask again and again, none asks the database; a ring wakes one of them."""
    nursery.start_soon(waits, claims, 60)
    await wait_all_tasks_blocked()
    assert queue.asked == 1
    room.look_ended(room.look_begins(), [])
    for _ in range(100):
        nursery.start_soon(waits, claims, 30)
    await wait_all_tasks_blocked()
    assert queue.asked == 1
    room.ring(ring())
    await wait_all_tasks_blocked()
    assert queue.asked == 2


async def test_who_waits_for_a_moment_only_asks(
    autojump_clock: MockClock, nursery: trio.Nursery, claims: AgentClaims, room: WaitingRoom, queue: EmptyQueue
) -> None:
    """What no ring tells, a lease that has lapsed, would be seen by the next look, and that would be too late for it."""
    nursery.start_soon(waits, claims, 60)
    await wait_all_tasks_blocked()
    room.look_ended(room.look_begins(), [])
    await waits(claims, QUIET_SECONDS_MAX / 2)
    assert queue.asked == 2
