"""The supervisor's promises: four endings of an actor, exact pauses, an ordered end. Trio's clock jumps; nothing sleeps."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from switchboard.errors import StartError, Unavailable
from switchboard.supervisor import Actor, ActorHealth, contain, jittered, one_line, supervise

# When, on Trio's clock, and what.
Diary = list[tuple[float, str]]


@attrs.define(kw_only=True)
class Fake:
    """An actor that follows a script of `(ending, after seconds)`, one for each run, then runs until it is cancelled."""

    name: str
    diary: Diary
    script: Sequence[tuple[Exception | str, float]] = ()
    starts: bool = True
    farewell_seconds: float = 0
    runs: int = 0

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.runs += 1
        ending, seconds = self.script[self.runs - 1] if self.runs <= len(self.script) else ("lives", math.inf)
        self.write("begins")
        try:
            if ending != "hangs at start" and not (isinstance(ending, Exception) and not self.starts):
                task_status.started()
            await trio.sleep(seconds)
            if isinstance(ending, Exception):
                raise ending
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.farewell_seconds)
            self.write("ends")

    def write(self, what: str) -> None:
        self.diary.append((round(trio.current_time(), 3), f"{self.name} {what}"))

    def begins(self) -> list[float]:
        return [when for when, what in self.diary if what == f"{self.name} begins"]

    def actor(self, **options: Any) -> Actor:
        return Actor(name=self.name, run=self.run, **options)


class House:
    """A supervisor under test, with no jitter: the longest pause."""

    def __init__(self, *actors: Actor, drain_seconds: float = 5.0) -> None:
        self.actors = actors
        self.closing = trio.Event()
        self.health: dict[str, ActorHealth] = {}
        self.restarted: list[str] = []
        self.drain_seconds = drain_seconds

    async def supervise(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await supervise(
            self.actors,
            closing=self.closing,
            drain_seconds=self.drain_seconds,
            health=self.health,
            on_restart=self.restarted.append,
            jitter=lambda seconds: seconds,
            task_status=task_status,
        )

    async def live_for(self, seconds: float) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.supervise)
            await trio.sleep(seconds)
            self.closing.set()


@pytest.fixture
def diary() -> Diary:
    """What happened and when, in order."""
    return []


async def test_actors_start_in_order_each_after_the_one_before(autojump_clock: MockClock, diary: Diary) -> None:
    """The second actor begins when the first has called started(), not before."""

    async def slow(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(3)
        task_status.started()
        await trio.sleep_forever()

    second = Fake(name="second", diary=diary)
    house = House(Actor(name="first", run=slow), second.actor())
    await house.live_for(1)
    assert second.begins() == [3.0]


async def test_first_ending_raises_before_started_the_house_does_not_open(autojump_clock: MockClock, diary: Diary) -> None:
    """One line names the actor and the reason; those before it have ended, in reverse; those after it never began."""
    first, second, fourth = (Fake(name=name, diary=diary) for name in ("first", "second", "fourth"))
    third = Fake(name="third", diary=diary, script=[(ValueError("no\ntable"), 1)], starts=False)
    house = House(first.actor(), second.actor(), third.actor(), fourth.actor())
    with pytest.raises(StartError) as caught:
        await house.supervise()
    assert str(caught.value) == "third did not start. ValueError: no table"
    assert isinstance(caught.value.__cause__, ValueError)
    assert [what for _, what in diary] == [
        "first begins", "second begins", "third begins", "third ends", "second ends", "first ends",
    ]  # fmt: skip
    assert fourth.runs == 0
    assert not any(health.running for health in house.health.values())


async def test_a_start_error_keeps_its_own_words(autojump_clock: MockClock, diary: Diary) -> None:
    """A StartError is written for the operator already, also where it comes in a group of one."""
    reason = StartError("Port 1 is taken.")
    fake = Fake(name="door", diary=diary, script=[(ExceptionGroup("", [reason]), 0)], starts=False)
    with pytest.raises(StartError, match=r"^Port 1 is taken\.$"):
        await House(fake.actor()).supervise()


async def test_returning_before_started_is_a_failed_start(autojump_clock: MockClock, diary: Diary) -> None:
    """An actor that is over before it was up has not started."""

    async def brief(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(StartError, match="brief did not start"):
        await House(Actor(name="brief", run=brief)).supervise()


async def test_second_ending_raises_later_restarted_with_doubling_pauses(autojump_clock: MockClock, diary: Diary) -> None:
    """0.5 s, then double, up to the actor's bound; and back to 0.5 s after a healthy minute."""
    fake = Fake(
        name="reaper",
        diary=diary,
        script=[(ValueError("x"), 0)] * 5 + [(ValueError("x"), 60)] + [(ValueError("x"), 59)],
    )
    house = House(fake.actor(retry_max_seconds=2.0))
    await house.live_for(300)
    begins = fake.begins()
    assert [round(later - sooner, 3) for sooner, later in pairwise(begins)] == [
        0.5, 1.0, 2.0, 2.0, 2.0, 60.5, 60.0,
    ]  # fmt: skip
    assert house.restarted == ["reaper"] * 7


async def test_pauses_are_jittered_and_bounded() -> None:
    """Between half and all of the pause, so that two houses do not knock in step."""
    pauses = [jittered(2.0) for _ in range(200)]
    assert min(pauses) >= 1.0
    assert max(pauses) <= 2.0
    assert len(set(pauses)) > 100


async def test_a_broker_may_wait_longer(autojump_clock: MockClock, diary: Diary) -> None:
    """retry_max_seconds is the actor's own: 30 for brokers."""
    fake = Fake(name="redis", diary=diary, script=[(ValueError("x"), 0)] * 9)
    await House(fake.actor(retry_max_seconds=30.0)).live_for(500)
    begins = fake.begins()
    assert [later - sooner for sooner, later in pairwise(begins)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


async def test_our_own_database_is_waited_for_no_longer_than_two_seconds(autojump_clock: MockClock, diary: Diary) -> None:
    """An adapter that is patient with its broker is back soon after the database, whichever of the two failed before."""
    script: list[tuple[Exception | str, float]] = [(ValueError("broker"), 0)] * 6 + [(Unavailable(detail="away"), 0)] * 3
    fake = Fake(name="adapter", diary=diary, script=script)
    await House(fake.actor(retry_max_seconds=30)).live_for(60)
    pauses = [later - earlier for earlier, later in pairwise(fake.begins())]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 2, 2, 2]


async def test_a_restart_that_fails_before_started_is_just_another_failure(autojump_clock: MockClock, diary: Diary) -> None:
    """Only the very first start can keep the house from opening."""

    @attrs.define
    class Flaky:
        begins: list[float] = attrs.field(factory=list)

        async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
            self.begins.append(trio.current_time())
            if 1 < len(self.begins) < 5:
                raise ConnectionError("the database is away")
            task_status.started()
            if len(self.begins) == 1:
                raise ConnectionError("the database went away")
            await trio.sleep_forever()

    flaky = Flaky()
    house = House(Actor(name="ledger", run=flaky.run))
    await house.live_for(60)
    assert flaky.begins == [0, 0.5, 1.5, 3.5, 5.5]
    assert house.health["ledger"].restarts == 4


async def test_third_ending_returns_unasked_is_the_same_as_raising(autojump_clock: MockClock, diary: Diary) -> None:
    """Nobody asked it to end, so it is started again, and /readyz says why."""
    fake = Fake(name="doorbell", diary=diary, script=[("returns", 1), ("returns", 1)])
    house = House(fake.actor())
    await house.live_for(30)
    assert fake.begins() == [0, 1.5, 3.5]
    assert house.health["doorbell"].last_error == "ActorReturned: returned though nobody asked it to"


async def test_fourth_ending_cancelled_passes(autojump_clock: MockClock, diary: Diary) -> None:
    """A cancelled supervisor cancels its actors and passes the cancellation on; nobody is restarted."""
    fake = Fake(name="pruner", diary=diary)
    house = House(fake.actor())
    with trio.move_on_after(10) as scope:
        await house.supervise()
    assert scope.cancelled_caught
    assert diary == [(0, "pruner begins"), (10, "pruner ends")]
    assert house.health["pruner"] == ActorHealth(running=False)


async def test_health_is_current(autojump_clock: MockClock, diary: Diary) -> None:
    """running, restarts and the last error, as they are now; the error stays after the recovery, the secret never."""
    fake = Fake(name="reaper", diary=diary, script=[(OSError("postgres://u:hunter2@h/db is away"), 5)])
    house = House(fake.actor(essential=False))
    async with trio.open_nursery() as nursery:
        await nursery.start(house.supervise)
        assert house.health == {"reaper": ActorHealth(running=True, essential=False)}
        await trio.sleep(5.1)
        error = "OSError: postgres://u:***@h/db is away"
        assert house.health["reaper"] == ActorHealth(running=False, last_error=error, essential=False)
        await trio.sleep(0.5)
        assert house.health["reaper"] == ActorHealth(running=True, restarts=1, last_error=error, essential=False)
        house.closing.set()
    assert house.health["reaper"].running is False


async def test_closing_drains_first_then_cancels_in_reverse_each_fully_ended(autojump_clock: MockClock, diary: Diary) -> None:
    """The front door finishes what is in flight; then the last one started goes first, and gone means gone."""
    house = House()

    async def door(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await house.closing.wait()
        await trio.sleep(2)
        diary.append((trio.current_time(), "door ends"))

    first, second = (Fake(name=name, diary=diary, farewell_seconds=1) for name in ("postgres", "ledger"))
    house.actors = (first.actor(), second.actor(), Actor(name="door", run=door, drains=True))
    await house.live_for(10)
    assert diary[2:] == [(12, "door ends"), (13, "ledger ends"), (14, "postgres ends")]
    assert house.restarted == []


async def test_a_drain_is_bounded(autojump_clock: MockClock, diary: Diary) -> None:
    """An actor that does not drain in time is cancelled like the others, after which the rest ends."""
    stuck, other = Fake(name="door", diary=diary), Fake(name="ledger", diary=diary)
    house = House(other.actor(), stuck.actor(drains=True), drain_seconds=4)
    await house.live_for(1)
    assert diary[2:] == [(5, "door ends"), (5, "ledger ends")]


async def test_a_reason_to_hurry_ends_a_pause(autojump_clock: MockClock, diary: Diary) -> None:
    """What failed may have been mended, or switched off: nobody waits 30 s for it to be seen."""
    fake = Fake(name="a", diary=diary, script=[(ValueError("no"), 0)] * 8)

    async def switched() -> None:
        await trio.sleep_until(20)

    await House(fake.actor(retry_max_seconds=30, reason_to_hurry=switched)).live_for(30)
    assert fake.begins()[:7] == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 20]


async def test_closing_does_not_wait_out_a_pause(autojump_clock: MockClock, diary: Diary) -> None:
    """A drained actor that is waiting to be restarted has nothing to drain."""
    fake = Fake(name="door", diary=diary, script=[(ValueError("x"), 0)] * 9)
    house = House(fake.actor(drains=True, retry_max_seconds=30), drain_seconds=100)
    await house.live_for(20)
    assert trio.current_time() == 20


async def test_the_signal_ends_a_start_that_is_under_way(autojump_clock: MockClock, diary: Diary) -> None:
    """C45: SIGTERM while an actor still tries to start is an end in order, not an error."""
    first = Fake(name="first", diary=diary)
    hangs = Fake(name="hangs", diary=diary, script=[("hangs at start", math.inf)])
    never = Fake(name="never", diary=diary)
    house = House(first.actor(), hangs.actor(), never.actor())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.supervise)
        await trio.sleep(3)
        house.closing.set()
    assert diary[2:] == [(3, "hangs ends"), (3, "first ends")]
    assert never.runs == 0


async def test_a_failure_on_the_way_out_is_not_restarted(autojump_clock: MockClock, diary: Diary) -> None:
    """What an actor raises while it is being stopped is logged, and the end goes on."""

    async def clumsy(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("dropped it")

    house = House(Fake(name="first", diary=diary).actor(), Actor(name="clumsy", run=clumsy))
    await house.live_for(1)
    assert house.restarted == []
    assert diary[-1] == (1, "first ends")


async def test_one_actor_failing_leaves_the_others_alone(autojump_clock: MockClock, diary: Diary) -> None:
    """R30: no exception in one actor ends anything else; a RecursionError and a group are exceptions like any other."""
    failures: list[tuple[Exception | str, float]] = [
        (RecursionError("deep"), 1),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), 1),
        (MemoryError(), 1),
    ]
    weak, strong = Fake(name="weak", diary=diary, script=failures), Fake(name="strong", diary=diary)
    house = House(weak.actor(), strong.actor())
    await house.live_for(100)
    assert weak.runs == 4
    assert strong.runs == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_keyboard_interrupt_and_system_exit_pass(diary: Diary, error: type[BaseException]) -> None:
    """They are not failures of an actor."""

    async def interrupted(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise error

    with pytest.raises(BaseExceptionGroup) as caught:
        await House(Actor(name="one", run=interrupted)).supervise()
    assert caught.group_contains(error)


async def test_contain_never_swallows_a_cancellation(autojump_clock: MockClock) -> None:
    """Cancelled together with a failure: the failure is handed over, the cancellation goes on."""
    handed: list[Exception] = []

    async def fails_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("on the way out")

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_when_cancelled)
            nursery.start_soon(trio.sleep_forever)

    went_on = False
    with trio.move_on_after(1) as scope:
        await contain(work, failed=handed.append)
        went_on = True
    assert scope.cancelled_caught
    assert not went_on
    assert [type(error) for error in handed] == [ValueError]


async def test_two_actors_of_one_name_are_a_bug() -> None:
    """Their health could not be told apart."""
    with pytest.raises(ValueError, match="same name"):
        await House(Actor(name="a", run=_never), Actor(name="a", run=_never)).supervise()


async def test_started_twice_is_a_failure_of_the_actor(autojump_clock: MockClock, diary: Diary) -> None:
    """As in Trio: it is a bug, and it is told."""

    async def twice(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        task_status.started()

    house = House(Actor(name="twice", run=twice))
    await house.live_for(0.1)
    assert "called 'started' twice" in str(house.health["twice"].last_error)


async def test_no_task_is_left(autojump_clock: MockClock, diary: Diary) -> None:
    """R29: when supervise returns, everything that it started is gone."""
    before = trio.lowlevel.current_statistics().tasks_living
    fakes: list[Fake] = [Fake(name=str(number), diary=diary) for number in range(5)]
    await House(*(fake.actor() for fake in fakes)).live_for(1)
    assert trio.lowlevel.current_statistics().tasks_living == before


def test_one_line_is_one_bounded_line() -> None:
    """Whatever an error says, its line on a page is short, single and without a secret."""
    line = one_line(ExceptionGroup("", [ValueError("a\nb password=x " + "y" * 9_999)]))
    assert line.startswith("ValueError: a b password=*** yyy")
    assert "\n" not in line
    assert len(line) == 300


_never: Callable[..., Awaitable[None]] = trio.sleep_forever
