"""The doorbell and its room: who is woken by a ring, in which order, who hears of it, and what a lost one costs (R25)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import doorbell as doorbell_module
from actors.doorbell import LOOK_SECONDS, Doorbell
from switchboard.errors import Unavailable
from switchboard.todo import Ring
from switchboard.waiting_room import (
    LOOK_FOR_LISTENERS,
    PACE_SECONDS_MAX,
    PACE_SECONDS_MIN,
    PACE_SECONDS_PER_LISTENER,
    QUIET_SECONDS_MAX,
    RINGS_BUFFERED_MAX,
    Attendant,
    Listener,
    Scope,
    Waiter,
    WaitingRoom,
)

ALICE, BOB = UUID(int=1), UUID(int=2)
CREDENTIAL = b"c" * 32


def ring_for(endpoint_id: UUID = ALICE, queue: str = "work", assignee: str | None = None) -> Ring:
    return Ring(endpoint_id=endpoint_id, queue=queue, todo_id=uuid4(), kind=None, source="api", assignee=assignee)


def seat(room: WaitingRoom, endpoint_id: UUID = ALICE, *queues: str, owner: str = "w1") -> Waiter:
    """A waiter who has just sat down."""
    waiter = Waiter(endpoint_id=endpoint_id, credential_sha256=CREDENTIAL, queues=frozenset(queues), owner=owner)
    room.enter(waiter)
    return waiter


def listen(room: WaitingRoom, endpoint_id: UUID = ALICE, *queues: str, owner: str = "w1") -> Listener:
    """A listener who has just attached."""
    listener = Listener(endpoint_id=endpoint_id, credential_sha256=CREDENTIAL, queues=frozenset(queues), owner=owner)
    room.attend(listener)
    return listener


def woken(*waiters: Attendant) -> list[bool]:
    return [waiter.bell.is_set() for waiter in waiters]


def heard(listener: Listener) -> list[Ring]:
    """What it heard since it was asked last."""
    return [ring for told in listener.take() for ring in told.rings]


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


def test_who_waits_again_keeps_its_place(room: WaitingRoom) -> None:
    """Woken for nothing, it is still the one who has waited longest."""
    first, second = seat(room), seat(room)
    room.ring(ring_for())
    first.heard = None
    room.wait_again(first)
    assert woken(first, second) == [False, False]
    room.ring(ring_for())
    assert woken(first, second) == [True, False]


def test_the_oldest_of_all_lines_is_woken(room: WaitingRoom) -> None:
    """Who waits for any queue and who waits for this one stand in one order."""
    anything, work, several = seat(room), seat(room, ALICE, "work"), seat(room, ALICE, "other", "work")
    for expected in ([True, False, False], [True, True, False], [True, True, True]):
        room.ring(ring_for())
        assert woken(anything, work, several) == expected


def test_everybody_who_may_claim_it_hears_of_it(room: WaitingRoom) -> None:
    """R25: of listeners all in scope, of waiters one; nobody of another endpoint, queue or owner."""
    ears = [listen(room), listen(room, ALICE, "work"), listen(room, ALICE, "work", "b")]
    deaf = [listen(room, BOB), listen(room, ALICE, "b"), listen(room, BOB, "work")]
    waiters = [seat(room), seat(room)]
    ring = ring_for()
    room.ring(ring)
    assert [heard(listener) for listener in ears] == [[ring]] * 3
    assert woken(*deaf) == [False] * 3
    assert woken(*waiters) == [True, False]
    room.ring(ring_for(assignee="somebody"))
    assert woken(*ears) == [False] * 3


def test_a_listener_that_does_not_read_costs_a_bounded_buffer(room: WaitingRoom) -> None:
    """C55: beyond it nothing is noted but that it has to look again; what was noted before is still told."""
    listener = listen(room)
    noted = [ring_for() for _ in range(RINGS_BUFFERED_MAX)]
    for ring in noted:
        room.ring(ring)
    told = [listener.look_again]
    room.ring(*[ring_for() for _ in range(1_000)])
    assert [*told, listener.look_again] == [False, True]
    assert heard(listener) == noted
    assert woken(listener) == [False]
    batch = [ring_for() for _ in range(1_000)]
    room.ring(*batch)  # together they are heard together, however many
    assert heard(listener) == batch


def test_what_rang_together_is_put_into_words_once(room: WaitingRoom) -> None:
    """P9: fifty listeners cost a batch fifty steps, not fifty times its rings."""
    ears = [listen(room, ALICE, *queues) for queues in ((), ("work",), ("work", "b"))]
    said: list[int] = []

    def say(rings: Sequence[Ring]) -> bytes:
        said.append(len(rings))
        return b"words"

    rings = [ring_for() for _ in range(100)] + [ring_for(queue="b") for _ in range(10)]
    assert room.ring(*rings, ring_for(queue="nobody's", assignee="nobody")) == rings
    words = [[told.in_words(say) for told in listener.take()] for listener in ears]
    assert words == [[b"words"] * 2, [b"words"], [b"words"] * 2]
    assert said == [100, 10]


def test_the_more_listen_the_more_is_left_to_gather(room: WaitingRoom) -> None:
    """P9: all of them together take a small part of a core; nobody who leaves is counted, and no pause is without end."""
    ears = [listen(room) for _ in range(50)]
    seat(room)
    assert room.pace_seconds() == pytest.approx(49 * PACE_SECONDS_PER_LISTENER)
    crowd = [listen(room) for _ in range(1_000)]
    assert room.pace_seconds() == PACE_SECONDS_MAX
    for listener in [*ears, *crowd[1:]]:
        room.leave(listener)
    assert room.pace_seconds() == PACE_SECONDS_MIN


def test_scopes_are_lines_not_attendants(room: WaitingRoom) -> None:
    """A thousand waiters of one queue are one scope, which wants a thousand todos; each owner is another one."""
    for n in range(1_000):
        seat(room, ALICE, "work", owner=f"w{n % 2}")
    listen(room, BOB)
    assert sorted(room.scopes(), key=str) == sorted(
        [
            Scope(endpoint_id=ALICE, queue="work", owner=None, wanted=1_000, waiters=1_000),
            Scope(endpoint_id=ALICE, queue="work", owner="w0", wanted=500, waiters=500),
            Scope(endpoint_id=ALICE, queue="work", owner="w1", wanted=500, waiters=500),
            Scope(endpoint_id=BOB, queue=None, owner=None, wanted=LOOK_FOR_LISTENERS),
            Scope(endpoint_id=BOB, queue=None, owner="w1", wanted=LOOK_FOR_LISTENERS),
        ],
        key=str,
    )


def test_a_credential_that_is_refused_ends_those_who_came_in_by_it(room: WaitingRoom) -> None:
    """R17: waiters and listeners alike, of that endpoint and of that credential only."""
    waiter, listener, bob = seat(room), listen(room), seat(room, BOB)
    room.refuse(ALICE, b"another")
    assert woken(waiter, listener, bob) == [False] * 3
    room.refuse(ALICE, CREDENTIAL)
    assert woken(waiter, listener, bob) == [True, True, False]
    assert (waiter.refused, listener.refused, bob.refused) == (True, True, False)


def test_closing_wakes_everybody(room: WaitingRoom) -> None:
    """One last look, of all endpoints, and they go."""
    waiters = [seat(room), seat(room), seat(room, BOB, "a")]
    room.close()
    assert room.closed
    assert woken(*waiters) == [True] * 3


def test_an_empty_room_hears_nothing(room: WaitingRoom) -> None:
    """A ring and the end, with nobody there."""
    room.ring(ring_for())
    room.close()
    assert (len(room), room.scopes(), room.credentials()) == (0, [], set())


def test_nothing_is_left_of_those_who_left(room: WaitingRoom) -> None:
    """However many endpoints have waited once, the room forgets them."""
    for _ in range(100):
        room.leave(seat(room, uuid4(), "a", "b"))
        room.leave(listen(room, uuid4(), "a"))
    assert [room.__dict__[name] for name in ("_present", "_waiting", "_listening")] == [{}, {}, {}]


# The actor.


@attrs.frozen
class Head:
    ring: Ring
    pending_seconds: float


@attrs.frozen
class Seen:
    heads: list[Head]
    refused: list[tuple[UUID, bytes]]
    complete: bool


@attrs.define
class Database:
    """What a look sees: todos that wait since an instant of ours, and credentials that are no longer good."""

    lost: list[Ring] = attrs.field(factory=list)
    since: float = 0.0
    refused: list[tuple[UUID, bytes]] = attrs.field(factory=list)
    away: bool = False
    complete: bool = True
    looks: int = 0
    gate: trio.Event | None = None
    """Until it is set no look comes back."""

    async def look(self, _scopes: Sequence[Scope], _credentials: Set[tuple[UUID, bytes]]) -> Seen:
        self.looks += 1
        await trio.lowlevel.checkpoint()
        if self.away:
            raise Unavailable(detail="away")
        if self.gate is not None:
            await self.gate.wait()
        return Seen([Head(ring, trio.current_time() - self.since) for ring in self.lost], self.refused, self.complete)


async def test_a_ring_reaches_the_room(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """Rung without waiting, heard at the doorbell's next step."""
    doorbell = Doorbell(room, look=Database().look)
    await nursery.start(doorbell.run)
    waiter, ring, began = seat(room), ring_for(), trio.current_time()
    doorbell.ring(ring)
    await waiter.bell.wait()
    assert waiter.heard is ring
    assert trio.current_time() == began


async def test_rings_before_its_start_are_kept(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """And those that come while it is being restarted: the inbox outlives the actor's runs."""
    doorbell = Doorbell(room, look=Database().look)
    waiters = [seat(room), seat(room)]
    doorbell.ring(ring_for())
    async with trio.open_nursery() as first_run:
        await first_run.start(doorbell.run)
        await waiters[0].bell.wait()
        first_run.cancel_scope.cancel()
    doorbell.ring(ring_for())
    await nursery.start(doorbell.run)
    await waiters[1].bell.wait()


async def test_a_lost_ring_costs_a_second(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """R25: one look for everybody, second after second: a waiter is woken, a listener hears of it, but once."""
    database = Database()
    await nursery.start(Doorbell(room, look=database.look).run)
    listener, began = listen(room), trio.current_time()
    database.lost = [ring_for()]
    told = []
    for _ in range(3):
        waiter = seat(room)
        await waiter.bell.wait()
        told += heard(listener)
        waiter.heard = None
        room.leave(waiter)
    assert trio.current_time() - began == pytest.approx(3 * LOOK_SECONDS)
    assert told == database.lost


async def test_what_rang_is_not_told_again(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """A todo that waits on is no news; one that went and came back without a ring is."""
    database = Database()
    doorbell = Doorbell(room, look=database.look)
    await nursery.start(doorbell.run)
    listener, ring = listen(room), ring_for()
    doorbell.ring(ring)
    await listener.bell.wait()
    assert heard(listener) == [ring]
    database.lost = [ring]
    await trio.sleep(5.5)
    assert heard(listener) == []
    database.since = trio.current_time()  # claimed and released meanwhile, and nobody rang
    await trio.sleep(1)
    assert heard(listener) == [ring]


async def test_nobody_there_no_look(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """Waiting costs nothing: the database is asked once a second for all of them, and not at all for none."""
    database = Database()
    await nursery.start(Doorbell(room, look=database.look).run)
    await trio.sleep(10.5)
    assert database.looks == 0
    for n in range(100):
        seat(room, UUID(int=n + 1))
    await trio.sleep(10)
    assert database.looks == 10


async def test_a_look_ends_who_is_refused(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom) -> None:
    """R17: in this process within a second of a revoke in another; while the database is away nobody is."""
    database = Database()
    await nursery.start(Doorbell(room, look=database.look).run)
    listener = listen(room)
    database.away = True
    await trio.sleep(5)
    database.away, database.refused = False, [(ALICE, CREDENTIAL)]
    assert not listener.refused
    with trio.fail_after(LOOK_SECONDS):
        await listener.bell.wait()
    assert listener.refused


async def test_a_full_inbox_drops_and_never_waits(
    autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R25: a ring is a hint. The drop is counted, told once, and made up for by the look."""
    monkeypatch.setattr(doorbell_module, "RINGS_WAITING_MAX", 3)
    database = Database()
    doorbell = Doorbell(room, look=database.look)
    waiters = [seat(room) for _ in range(5)]
    for _ in range(5):
        doorbell.ring(ring_for())
    assert doorbell.dropped == 2
    database.lost = [ring_for()]
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
    doorbell = Doorbell(room, look=Database().look)
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


def newcomer(*queues: str, owner: str = "w1") -> Waiter:
    """A waiter that has not sat down yet."""
    return Waiter(endpoint_id=ALICE, credential_sha256=CREDENTIAL, queues=frozenset(queues), owner=owner)


async def test_a_line_is_quiet_while_a_look_and_no_ring_says_so(
    autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom
) -> None:
    """Who comes into a line that others stand in need not look; a ring, the last one's leaving, an outage end that."""
    database = Database()
    doorbell = Doorbell(room, look=database.look)
    await nursery.start(doorbell.run)
    waiter = seat(room, ALICE, "work")
    assert not room.is_quiet(newcomer("work"))
    await trio.sleep(LOOK_SECONDS + 0.1)
    assert room.is_quiet(newcomer("work"))
    assert not room.is_quiet(newcomer("work", owner="w2"))
    assert not room.is_quiet(newcomer("work", "other"))
    assert not room.is_quiet(newcomer())

    room.ring(ring_for(queue="work", assignee="somebody else"))
    assert room.is_quiet(newcomer("work"))
    room.ring(ring_for(queue="work", assignee="w1"))
    assert not room.is_quiet(newcomer("work"))
    room.leave(waiter)

    waiter = seat(room, ALICE, "work")
    await trio.sleep(LOOK_SECONDS + 0.1)
    assert room.is_quiet(newcomer("work"))
    room.leave(waiter)  # a ring would not even be noted now
    assert not room.is_quiet(newcomer("work"))

    waiter = seat(room, ALICE, "work")
    await trio.sleep(LOOK_SECONDS + 0.1)
    assert room.is_quiet(newcomer("work"))
    database.away = True
    await trio.sleep(LOOK_SECONDS)
    assert not room.is_quiet(newcomer("work"))


@pytest.mark.parametrize("why", ["it waits", "it rang meanwhile", "there is more", "the look hangs"])
async def test_a_line_is_not_quiet(autojump_clock: MockClock, nursery: trio.Nursery, room: WaitingRoom, why: str) -> None:
    """Where the look saw something, or not all, or does not come back, or something rang since it began."""
    database = Database(complete=why != "there is more", gate=trio.Event())
    doorbell = Doorbell(room, look=database.look)
    await nursery.start(doorbell.run)
    seat(room, ALICE, "work")
    assert database.gate is not None
    database.gate.set()
    await trio.sleep(LOOK_SECONDS + 0.1)
    assert room.is_quiet(newcomer("work")) is (why != "there is more")
    database.gate = trio.Event()
    if why == "it waits":
        database.lost = [ring_for(queue="work")]
    await trio.sleep(LOOK_SECONDS)
    if why == "it rang meanwhile":
        room.ring(ring_for(queue="work"))
    if why == "the look hangs":
        await trio.sleep(QUIET_SECONDS_MAX)
    else:
        database.gate.set()
        await wait_all_tasks_blocked()
    assert not room.is_quiet(newcomer("work"))
