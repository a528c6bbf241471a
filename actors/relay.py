"""The relay: what rings here is told to the other processes of the same database, and what rings there is heard here.

After the commit, from a connection of its own, and debounced: what rings within `GATHER_SECONDS` goes in one word. A word
carries ids only, since a NOTIFY has 8,000 bytes at most; who listens looks up what they are. All of it are hints: the look that
the doorbell takes once a second makes up for whatever is lost (R25).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol
from uuid import UUID

import trio

from switchboard.todo import Ring
from switchboard.waiting_room import WaitingRoom

GATHER_SECONDS: Final = 0.025
IDS_PER_WORD_MAX: Final = 200
WORDS_AT_ONCE_MAX: Final = 50
GATHERED_MAX: Final = 10_000
"""Ids that wait to be told, or are looked up at a time; what does not fit is left to the look of whoever waits for it."""
CHECK_SECONDS: Final = 10.0

_RING, _CHANGED = "ring", "changed"


class Line(Protocol):
    """The way to the other processes."""

    async def send(self, payloads: Sequence[str]) -> None:
        """Tells all others."""
        ...

    async def receive(self) -> list[str]:
        """What others told; waits until they do."""
        ...

    async def check(self) -> None:
        """Raises where the line is dead."""
        ...


class Relay:
    """What is to be told, and the actor that tells it and listens."""

    def __init__(
        self,
        *,
        open_line: Callable[[], AbstractAsyncContextManager[Line]],
        room: WaitingRoom,
        pending: Callable[[Sequence[tuple[UUID, UUID]]], Awaitable[Sequence[Ring]]],
        refused: Callable[[set[tuple[UUID, bytes]]], Awaitable[Sequence[tuple[UUID, bytes]]]],
        hear: Callable[[Ring], None],
        forget: Callable[[], None],
    ) -> None:
        self._open_line = open_line
        self._room = room
        self._pending = pending
        self._refused = refused
        self._hear = hear
        self._forget = forget
        self._gathered: dict[UUID, dict[UUID, None]] = {}
        self._gathered_ids = 0
        self._changed: set[UUID] = set()
        self._something = trio.Event()

    def tell(self, *rings: Ring) -> None:
        """Others shall hear of these todos. Never waits, never fails; what is too much to gather is left to their looks."""
        for endpoint_id, together in groupby(rings, attrgetter("endpoint_id")):
            if self._gathered_ids < GATHERED_MAX:
                ids = self._gathered.setdefault(endpoint_id, {})
                before = len(ids)
                ids.update(dict.fromkeys([ring.todo_id for ring in together]))
                self._gathered_ids += len(ids) - before
                self._something.set()

    def tell_changed(self, endpoint_id: UUID) -> None:
        """Others shall ask again for the credential of this endpoint: it was revoked or rotated (R17)."""
        self._changed.add(endpoint_id)
        self._something.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor. A line that is lost ends the run; the supervisor starts it again."""
        task_status.started()
        async with self._open_line() as line, trio.open_nursery() as nursery:
            nursery.start_soon(self._speak, line)
            nursery.start_soon(self._listen, line)
            nursery.start_soon(self._check, line)

    async def _speak(self, line: Line) -> None:
        while True:
            await self._something.wait()
            self._something = trio.Event()
            await line.send(self._words())
            if self._gathered:
                self._something.set()
            await trio.sleep(GATHER_SECONDS)

    def _words(self) -> list[str]:
        """The next words to say, bounded."""
        words = [f"{_CHANGED} {endpoint_id}" for endpoint_id in self._changed]
        self._changed.clear()
        while self._gathered and len(words) < WORDS_AT_ONCE_MAX:
            endpoint_id, ids = next(iter(self._gathered.items()))
            some = list(ids)[:IDS_PER_WORD_MAX]
            words.append(f"{_RING} {endpoint_id} {','.join(id_.hex for id_ in some)}")
            for id_ in some:
                del ids[id_]
            self._gathered_ids -= len(some)
            if not ids:
                del self._gathered[endpoint_id]
        return words

    async def _listen(self, line: Line) -> None:
        while True:
            todos: list[tuple[UUID, UUID]] = []
            for word in await line.receive():
                kind, endpoint_id, ids = _read(word)
                if endpoint_id is None or not (kind == _CHANGED or self._room.attended(endpoint_id)):
                    continue
                if kind == _CHANGED:
                    await self._ask_again(endpoint_id)
                elif kind == _RING:
                    todos += [(endpoint_id, id_) for id_ in ids]
            if todos:
                for ring in await self._pending(todos[:GATHERED_MAX]):
                    self._hear(ring)

    async def _ask_again(self, endpoint_id: UUID) -> None:
        self._forget()
        credentials = {credential for credential in self._room.credentials() if credential[0] == endpoint_id}
        if credentials:
            for refused in await self._refused(credentials):
                self._room.refuse(*refused)

    async def _check(self, line: Line) -> None:
        while True:
            await trio.sleep(CHECK_SECONDS)
            await line.check()


def _read(word: str) -> tuple[str, UUID | None, list[UUID]]:
    """What a word says; nothing where it is not one of ours, or of a newer switchboard."""
    kind, _, rest = word.partition(" ")
    endpoint_id, _, ids = rest.partition(" ")
    try:
        return kind, UUID(endpoint_id), [UUID(id_) for id_ in ids.split(",") if id_]
    except ValueError:
        return kind, None, []
