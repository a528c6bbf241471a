"""The doorbell and its room of waiters: who is woken by a ring, in which order, and what a lost one costs (R25)."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import doorbell as doorbell_module
from actors.doorbell import LOOK_SECONDS, Doorbell
from switchboard.todo import Ring
from switchboard.waiting_room import Waiter, WaitingRoom

ALICE, BOB = UUID(int=1), UUID(int=2)


def ring_for(endpoint_id: UUID = ALICE, queue: str = "work", assignee: str | None = None) -> Ring:
    return Ring(endpoint_id=endpoint_id, queue=queue, todo_id=uuid4(), kind=None, source="api", assignee=assignee)


def seat(room: WaitingRoom, endpoint_id: UUID = ALICE, *queues: str, owner: str = "w1") -> Waiter:
    """A waiter who has just sat down."""
    waiter = Waiter(endpoint_id=endpoint_id, queues=frozenset(queues), owner=owner)
    room.enter(waiter)
    return waiter


def woken(*waiters: Waiter) -> list[bool]:
    return [waiter.bell.is_set() for waiter in waiters]


@pytest.fixture
def room() -> WaitingRoom:
    return WaitingRoom()


# The room: all of it synchronous.


def test_a_ring_wakes_the_one_who_waited_longest(room: WaitingRoom) -> None:
    """One todo, one waiter: the oldest, and nobody else."""
    waiters = [seat(room) for _ in range(3)]
    room.ring(ring_for())
    assert woken(*waiters) == [True, False, False]


def test_as_many_are_woken_as_there_are_todos(room: WaitingRoom) -> None:
    """Each ring wakes the oldest who has not been woken yet; one too many finds nobody, and is lost without harm."""
    waiters = [seat(room) for _ in range(3)]
    for _ in range(2):
        room.ring(ring_for())
    assert woken(*waiters) == [True, True, False]
    for _ in range(5):
        room.ring(ring_for())
    assert woken(*waiters) == [True, True, True]


def test_a_ring_never_crosses_endpoints(room: WaitingRoom) -> None:
    """SPEC-0003 Doorbell never crosses endpoints: the same queue name, and any queue, hear nothing of another's."""
    bob = [seat(room, BOB, "work"), seat(room, BOB)]
    alice = seat(room, ALICE, "work")
    room.ring(ring_for(ALICE, "work"))
    assert woken(*bob) == [False, False]
    assert woken(alice) == [True]


@pytest.mark.parametrize(
    ("queues", "owner", "ring", "hears"),
    [
        ((), "w1", ring_for(queue="a"), True),
        (("a",), "w1", ring_for(queue="a"), True),
        (("b", "a"), "w1", ring_for(queue="a"), True),
        (("b",), "w1", ring_for(queue="a"), False),
        (("A",), "w1", ring_for(queue="a"), False),
        ((), "w1", ring_for(assignee="w1"), True),
        ((), "w1", ring_for(assignee="w2"), False),
        (("a",), "w1", ring_for(queue="b", assignee="w1"), False),
    ],
)
def test_only_who_may_claim_it_hears(room: WaitingRoom, queues: tuple[str, ...], owner: str, ring: Ring, hears: bool) -> None:
    """By endpoint, then by queue, then by what the owner may claim."""
    waiter = seat(room, ALICE, *queues, owner=owner)
    room.ring(ring)
    assert woken(waiter) == [hears]


def test_who_may_not_claim_it_is_passed_over(room: WaitingRoom) -> None:
    """An older waiter for something else is not in the way."""
    elsewhere, other, right = seat(room, ALICE, "b"), seat(room, owner="w2"), seat(room, ALICE, "a", owner="w1")
    room.ring(ring_for(queue="a", assignee="w1"))
    assert woken(elsewhere, other, right) == [False, False, True]


def test_one_that_leaves_without_having_acted_passes_the_wake_on(room: WaitingRoom) -> None:
    """It was woken and hung up: the next who may claim the todo is woken instead."""
    first, elsewhere, second = seat(room), seat(room, ALICE, "b"), seat(room)
    room.ring(ring_for())
    room.leave(first)
    assert woken(elsewhere, second) == [False, True]


def test_one_that_has_acted_takes_its_wake_along(room: WaitingRoom) -> None:
    """It claimed and goes: nobody else is woken for the same todo."""
    first, second = seat(room), seat(room)
    room.ring(ring_for())
    first.heard = None
    room.leave(first)
    assert woken(second) == [False]


def test_one_that_leaves_unwoken_wakes_nobody(room: WaitingRoom) -> None:
    """Its time was up."""
    first, second = seat(room), seat(room)
    room.leave(first)
    assert woken(second) == [False]
    assert len(room) == 1


def test_a_passed_wake_may_be_passed_again(room: WaitingRoom) -> None:
    """Down the line, until somebody stays; with nobody left it is dropped."""
    waiters = [seat(room) for _ in range(4)]
    room.ring(ring_for())
    for waiter in waiters[:3]:
        room.leave(waiter)
    assert woken(waiters[3]) == [True]
    room.leave(waiters[3])
    assert len(room) == 0


def test_a_look_wakes_one_of_each_scope(room: WaitingRoom) -> None:
    """The oldest for each endpoint and queues: a thousand waiters of one queue cost one look."""
    crowd = [seat(room, ALICE, "work") for _ in range(1_000)]
    several = [seat(room, ALICE, "a", "b"), seat(room, ALICE, "b", "a")]
    anything = [seat(room) for _ in range(2)]
    bob = [seat(room, BOB, "work") for _ in range(2)]
    room.look_for_yourselves()
    assert sum(woken(*crowd)) == 1
    assert woken(crowd[0], *several, *anything, *bob) == [True, True, False, True, False, True, False]


def test_a_look_is_no_ring_that_must_be_passed_on(room: WaitingRoom) -> None:
    """Whoever looked for itself and leaves owes nobody a wake."""
    first, second = seat(room), seat(room)
    room.look_for_yourselves()
    room.leave(first)
    assert woken(second) == [False]


def test_closing_wakes_everybody(room: WaitingRoom) -> None:
    """One last look, of all endpoints, and they go."""
    waiters = [seat(room), seat(room), seat(room, BOB, "a")]
    room.close()
    assert room.closed
    assert woken(*waiters) == [True] * 3


def test_an_empty_room_hears_nothing(room: WaitingRoom) -> None:
    """A ring, a look and the end, with nobody there."""
    room.ring(ring_for())
    room.look_for_yourselves()
    room.close()
    assert len(room) == 0


def test_nothing_is_left_of_those_who_left(room: WaitingRoom) -> None:
    """However many endpoints have waited once, the room forgets them."""
    for _ in range(100):
        room.leave(seat(room, uuid4()))
    assert room.__dict__["_by_endpoint"] == {}


# The actor.


async def test_a_ring_reaches_the_room(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """Rung without waiting, heard at the doorbell's next step."""
    doorbell = Doorbell(room)
    await nursery.start(doorbell.run)
    waiter, ring, began = seat(room), ring_for(), trio.current_time()
    doorbell.ring(ring)
    await waiter.bell.wait()
    assert waiter.heard is ring
    assert trio.current_time() == began


async def test_rings_before_its_start_are_kept(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """And those that come while it is being restarted: the inbox outlives the actor's runs."""
    doorbell = Doorbell(room)
    waiters = [seat(room), seat(room)]
    doorbell.ring(ring_for())
    async with trio.open_nursery() as first_run:
        await first_run.start(doorbell.run)
        await waiters[0].bell.wait()
        first_run.cancel_scope.cancel()
    doorbell.ring(ring_for())
    await nursery.start(doorbell.run)
    await waiters[1].bell.wait()


async def test_once_a_second_the_waiters_look(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """A lost ring costs a second: the oldest of the scope is woken by the look, second after second."""
    doorbell = Doorbell(room)
    await nursery.start(doorbell.run)
    waiter = seat(room)
    for _ in range(3):
        began = trio.current_time()
        await waiter.bell.wait()
        assert trio.current_time() - began == pytest.approx(LOOK_SECONDS)
        waiter.bell = trio.Event()


async def test_a_full_inbox_drops_and_never_waits(
    autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R25: a ring is a hint. The drop is counted, told once, and made up for by the look."""
    monkeypatch.setattr(doorbell_module, "RINGS_WAITING_MAX", 3)
    doorbell = Doorbell(room)
    waiters = [seat(room) for _ in range(5)]
    for _ in range(5):
        doorbell.ring(ring_for())
    assert doorbell.dropped == 2
    await nursery.start(doorbell.run)
    await wait_all_tasks_blocked()
    assert sum(woken(*waiters)) == 3
    for waiter in waiters[:3]:
        waiter.heard = None  # it claims, and goes
        room.leave(waiter)
    await trio.sleep(LOOK_SECONDS + 0.1)
    assert doorbell.dropped == 0
    assert woken(*waiters[3:]) == [True, False]


async def test_it_ends_only_by_cancellation(autojump_clock: MockClock, room: WaitingRoom) -> None:
    """Nobody there, nothing to do, closing or not: it goes on."""
    doorbell = Doorbell(room)
    ended: list[Any] = []

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        await doorbell.run(task_status=task_status)
        ended.append("returned")

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        room.close()
        await trio.sleep(1_000)
        nursery.cancel_scope.cancel()
    assert ended == []
