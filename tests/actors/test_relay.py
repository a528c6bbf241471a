"""The relay: what is told to other processes, in which words and how often, and what is made of what they tell (R17, R25)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import relay as relay_module
from actors.relay import GATHER_SECONDS, IDS_PER_WORD_MAX, WORDS_AT_ONCE_MAX, Relay
from switchboard.errors import Unavailable
from switchboard.todo import Ring
from switchboard.waiting_room import Listener, WaitingRoom

ALICE, BOB = UUID(int=1), UUID(int=2)
CREDENTIAL = b"c" * 32


def ring_for(endpoint_id: UUID = ALICE) -> Ring:
    return Ring(endpoint_id=endpoint_id, queue="work", todo_id=uuid4(), kind=None, source="api", assignee=None)


@attrs.define(eq=False)
class Others:
    """The other processes, at the far end of the line, and the database that both ask."""

    room: WaitingRoom = attrs.field(factory=WaitingRoom)
    sent: list[tuple[float, list[str]]] = attrs.field(factory=list)
    said: list[str] = attrs.field(factory=list)
    arrived: trio.Event = attrs.field(factory=trio.Event)
    asked: list[tuple[UUID, UUID]] = attrs.field(factory=list)
    pending: list[Ring] = attrs.field(factory=list)
    refused: list[tuple[UUID, bytes]] = attrs.field(factory=list)
    heard: list[Ring] = attrs.field(factory=list)
    forgot: int = 0
    dead: bool = False
    lines: int = 0

    def relay(self) -> Relay:
        return Relay(
            open_line=self.line,
            room=self.room,
            pending=self._pending,
            refused=self._refused,
            hear=self.heard.append,
            forget=self._forget,
        )

    def say(self, *words: str) -> None:
        """Tells the relay under test."""
        self.said += words
        self.arrived.set()

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Others]:
        self.lines += 1
        yield self

    async def send(self, payloads: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()
        if self.dead:
            raise Unavailable(detail="dead")
        self.sent.append((trio.current_time(), list(payloads)))

    async def receive(self) -> list[str]:
        await self.arrived.wait()
        self.arrived = trio.Event()
        words, self.said = self.said, []
        return words

    async def check(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.dead:
            raise Unavailable(detail="dead")

    async def _pending(self, todos: Sequence[tuple[UUID, UUID]]) -> list[Ring]:
        await trio.lowlevel.checkpoint()
        self.asked += todos
        return self.pending

    async def _refused(self, credentials: set[tuple[UUID, bytes]]) -> list[tuple[UUID, bytes]]:
        await trio.lowlevel.checkpoint()
        return [refused for refused in self.refused if refused in credentials]

    def _forget(self) -> None:
        self.forgot += 1


@pytest.fixture
def others() -> Others:
    return Others()


def attend(others: Others, endpoint_id: UUID = ALICE) -> Listener:
    listener = Listener(endpoint_id=endpoint_id, credential_sha256=CREDENTIAL, queues=frozenset(), owner="w")
    others.room.attend(listener)
    return listener


async def test_what_rings_together_goes_in_one_word(autojump_clock: MockClock, nursery: trio.Nursery, others: Others) -> None:
    """The first at once, what follows within `GATHER_SECONDS` together; ids only, by endpoint, each id once."""
    relay = others.relay()
    await nursery.start(relay.run)
    first, *more = (ring_for() for _ in range(4))
    bobs = ring_for(BOB)
    relay.tell(first)
    await wait_all_tasks_blocked()
    for ring in (*more, bobs, more[0]):
        relay.tell(ring)
    await trio.sleep(1)
    assert others.sent == [
        (0.0, [f"ring {ALICE} {first.todo_id.hex}"]),
        (
            pytest.approx(GATHER_SECONDS),
            [f"ring {ALICE} {','.join(ring.todo_id.hex for ring in more)}", f"ring {BOB} {bobs.todo_id.hex}"],
        ),
    ]


async def test_no_word_is_too_long_and_no_breath(autojump_clock: MockClock, nursery: trio.Nursery, others: Others) -> None:
    """C54: a NOTIFY holds 8,000 bytes; a statement so many words; the rest after a pause. Nothing is said twice."""
    relay = others.relay()
    rings = [ring_for() for _ in range(IDS_PER_WORD_MAX + 1)] + [ring_for(uuid4()) for _ in range(WORDS_AT_ONCE_MAX)]
    for ring in rings:
        relay.tell(ring)
    await nursery.start(relay.run)
    await trio.sleep(1)
    assert [len(words) for _, words in others.sent] == [WORDS_AT_ONCE_MAX, 2]
    assert others.sent[1][0] - others.sent[0][0] == pytest.approx(GATHER_SECONDS)
    words = [word for _, some in others.sent for word in some]
    assert max(map(len, words)) < 8_000
    told = [id_ for word in words for id_ in word.split(" ")[2].split(",")]
    assert sorted(told) == sorted(ring.todo_id.hex for ring in rings)


async def test_a_flood_is_bounded(
    autojump_clock: MockClock, nursery: trio.Nursery, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R25: what does not fit is left to the look of whoever waits; there is room again once it was said."""
    monkeypatch.setattr(relay_module, "GATHERED_MAX", 5)
    relay = others.relay()
    for _ in range(8):
        relay.tell(ring_for())
    await nursery.start(relay.run)
    await trio.sleep(1)
    relay.tell(ring_for())
    await trio.sleep(1)
    assert [word.count(",") + 1 for _, words in others.sent for word in words] == [5, 1]


async def test_only_what_somebody_waits_for_is_looked_up(
    autojump_clock: MockClock, nursery: trio.Nursery, others: Others
) -> None:
    """A word for an endpoint that nobody attends costs no query; what is still pending is heard."""
    await nursery.start(others.relay().run)
    attend(others)
    alices, bobs = ring_for(), ring_for(BOB)
    others.pending = [alices]
    others.say(f"ring {BOB} {bobs.todo_id.hex}")
    await wait_all_tasks_blocked()
    assert others.asked == []
    others.say(f"ring {ALICE} {alices.todo_id.hex},{bobs.todo_id.hex}")
    await wait_all_tasks_blocked()
    assert others.asked == [(ALICE, alices.todo_id), (ALICE, bobs.todo_id)]
    assert others.heard == [alices]


async def test_a_change_ends_who_is_refused(autojump_clock: MockClock, nursery: trio.Nursery, others: Others) -> None:
    """R17: a revoke in one process is told at once; the other asks again for the credentials of those who are there."""
    relay = others.relay()
    await nursery.start(relay.run)
    relay.tell_changed(BOB)
    await wait_all_tasks_blocked()
    assert [words for _, words in others.sent] == [[f"changed {BOB}"]]
    listener, untouched = attend(others), attend(others, BOB)
    others.refused = [(ALICE, CREDENTIAL), (BOB, CREDENTIAL)]
    others.say(f"changed {ALICE}")
    await wait_all_tasks_blocked()
    assert (listener.refused, untouched.refused) == (True, False)
    assert others.forgot == 1


async def test_a_change_is_believed_with_nobody_there(autojump_clock: MockClock, nursery: trio.Nursery, others: Others) -> None:
    """What was remembered of the credential is forgotten all the same: the next request asks the database."""
    await nursery.start(others.relay().run)
    others.say(f"changed {ALICE}")
    await wait_all_tasks_blocked()
    assert others.forgot == 1


@pytest.mark.parametrize("word", ["", "ring", "ring x", f"ring {ALICE} x", f"ring {ALICE}", f"{ALICE}", f"later {ALICE} {BOB}"])
async def test_what_nobody_understands_is_passed_over(
    autojump_clock: MockClock, nursery: trio.Nursery, others: Others, word: str
) -> None:
    """A newer switchboard, or anybody at all, may say other things on the same channel."""
    await nursery.start(others.relay().run)
    attend(others)
    ring = ring_for()
    others.pending = [ring]
    others.say(word, f"ring {ALICE} {ring.todo_id.hex}")
    await wait_all_tasks_blocked()
    assert others.heard == [ring]
    assert others.asked == [(ALICE, ring.todo_id)]


async def test_a_dead_line_ends_the_run_and_loses_no_later_word(autojump_clock: MockClock, others: Others) -> None:
    """The supervisor starts it again, on a new line; what rang meanwhile is said then."""
    relay = others.relay()
    others.dead = True
    with pytest.raises(ExceptionGroup) as failed:
        await relay.run()  # a check finds it out, though nobody has anything to say
    assert failed.group_contains(Unavailable)
    ring = ring_for()
    relay.tell(ring)
    others.dead = False
    async with trio.open_nursery() as nursery:
        await nursery.start(relay.run)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert [words for _, words in others.sent] == [[f"ring {ALICE} {ring.todo_id.hex}"]]
    assert others.lines == 2
