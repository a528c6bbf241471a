"""Answers that stay good for a moment: asked once, shared, forgotten in time (R17)."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from switchboard.brief_memory import BriefMemory
from switchboard.errors import Unavailable


@attrs.define(eq=False)
class Source:
    """What is asked: it counts, may be slow, and may fail."""

    asked: int = 0
    seconds: float = 0
    failure: Exception | None = None
    gate: trio.Event | None = None

    async def __call__(self) -> int:
        self.asked += 1
        answer = self.asked
        await trio.sleep(self.seconds)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return answer


@pytest.fixture
def memory() -> BriefMemory[str, int]:
    return BriefMemory(seconds=1.0, entries_max=3)


async def test_an_answer_is_remembered_for_its_time(autojump_clock: MockClock, memory: BriefMemory[str, int]) -> None:
    """Asked once until the second is over, and again then."""
    source = Source()
    assert await memory.get("k", source) == 1
    await trio.sleep(0.99)
    assert await memory.get("k", source) == 1
    await trio.sleep(0.01)
    assert await memory.get("k", source) == 2


async def test_its_time_runs_from_the_question(autojump_clock: MockClock, memory: BriefMemory[str, int]) -> None:
    """A slow answer is as old as its question: R17's second is counted from when the database was asked."""
    source = Source(seconds=0.7)
    assert await memory.get("k", source) == 1
    await trio.sleep(0.25)
    assert await memory.get("k", source) == 1
    await trio.sleep(0.1)
    assert await memory.get("k", source) == 2


async def test_keys_have_answers_of_their_own(autojump_clock: MockClock, memory: BriefMemory[str, int]) -> None:
    """One credential's answer is no other's."""
    source = Source()
    assert [await memory.get(key, source) for key in ("a", "b", "a", "b")] == [1, 2, 1, 2]


async def test_no_answer_is_an_answer(autojump_clock: MockClock) -> None:
    """None, for a credential that nobody has, is remembered too: guessing costs the database nothing."""
    memory: BriefMemory[str, int | None] = BriefMemory(seconds=1, entries_max=3)
    asked = []

    async def nobody() -> None:
        asked.append("k")
        await trio.lowlevel.checkpoint()

    assert [await memory.get("k", nobody) for _ in range(3)] == [None] * 3
    assert asked == ["k"]


async def test_those_who_ask_at_once_share_one_question(
    autojump_clock: MockClock, nursery: trio.Nursery, memory: BriefMemory[str, int]
) -> None:
    """A hundred callers with one credential cost one look-up."""
    source = Source(gate=trio.Event())
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await memory.get("k", source))

    for _ in range(100):
        nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    assert source.gate is not None
    source.gate.set()
    await wait_all_tasks_blocked()
    assert answers == [1] * 100
    assert source.asked == 1


async def test_they_share_its_failure_and_nobody_remembers_it(
    autojump_clock: MockClock, nursery: trio.Nursery, memory: BriefMemory[str, int]
) -> None:
    """An outage is said once, to all who wait, and asked about again by the next."""
    source = Source(gate=trio.Event(), failure=Unavailable(detail="away"))
    refused = []

    async def ask() -> None:
        with pytest.raises(Unavailable):
            await memory.get("k", source)
        refused.append(1)

    for _ in range(10):
        nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    assert source.gate is not None
    source.gate.set()
    await wait_all_tasks_blocked()
    assert (len(refused), source.asked) == (10, 1)
    source.failure = None
    assert await memory.get("k", source) == 2


async def test_one_who_is_cancelled_hands_the_question_on(
    autojump_clock: MockClock, nursery: trio.Nursery, memory: BriefMemory[str, int]
) -> None:
    """Whoever asked hangs up: those who waited for it ask anew, one of them, and are answered."""
    source = Source(gate=trio.Event())
    answers: list[int] = []

    async def ask(scope: trio.CancelScope) -> None:
        with scope:
            answers.append(await memory.get("k", source))

    first = trio.CancelScope()
    nursery.start_soon(ask, first)
    await wait_all_tasks_blocked()
    for _ in range(5):
        nursery.start_soon(ask, trio.CancelScope())
    await wait_all_tasks_blocked()
    first.cancel()
    await wait_all_tasks_blocked()
    assert source.asked == 2
    assert source.gate is not None
    source.gate.set()
    await wait_all_tasks_blocked()
    assert answers == [2] * 5


async def test_forgetting_is_at_once(autojump_clock: MockClock, memory: BriefMemory[str, int]) -> None:
    """R17: after a revoke the very next question goes to the database, whatever its key."""
    source = Source()
    await memory.get("a", source)
    await memory.get("b", source)
    memory.forget()
    assert [await memory.get(key, source) for key in ("a", "b")] == [3, 4]


async def test_what_was_asked_before_forgetting_is_not_remembered(
    autojump_clock: MockClock, nursery: trio.Nursery, memory: BriefMemory[str, int]
) -> None:
    """R17: a look-up under way while the revoke commits may still say yes to its own caller, and to nobody after it."""
    source = Source(gate=trio.Event())
    early: list[int] = []

    async def ask() -> None:
        early.append(await memory.get("k", source))

    nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    memory.forget()
    gate, source.gate = source.gate, None
    assert await memory.get("k", source) == 2
    assert gate is not None
    gate.set()
    await wait_all_tasks_blocked()
    assert early == [1]
    assert await memory.get("k", source) == 2


async def test_it_is_bounded(autojump_clock: MockClock, memory: BriefMemory[str, int]) -> None:
    """The oldest answer goes first; strangers with made-up credentials cannot fill the memory."""
    source = Source()
    for key in "abcd":
        await memory.get(key, source)
    assert await memory.get("d", source) == 4
    assert await memory.get("a", source) == 5
    for n in range(1_000):
        await memory.get(str(n), source)
    assert len(memory.__dict__["_entries"]) == 3
    assert memory.__dict__["_questions"] == {}
