"""The doorbell: hears that todos became pending, and tells whoever attends (R25).

Rings come in by `ring`, which never waits: after a commit, from the ledger, the sweeps, and other processes. They are hints.
What was lost on the way (a full inbox, a process that died between its commit and its ring, another process whose word did
not arrive) is made up for by one look a second, for everybody who attends together, and by none while nobody does. The same
look ends those whose credential is no longer good (R17).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence, Set
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol
from uuid import UUID

import structlog
import trio

from switchboard.errors import SwitchboardError
from switchboard.todo import Ring
from switchboard.waiting_room import Scope, WaitingRoom

RINGS_WAITING_MAX: Final = 10_000
LOOK_SECONDS: Final = 1.0
REMEMBERED_MAX: Final = 10_000
"""Todos of which is remembered when they rang last, so that a look tells listeners only of those that did not ring: so many at
the least, and a batch more than twice as many at the most."""
RING_SECONDS_MAX: Final = 2.0
"""A ring comes this long after its commit at the latest, as far as telling a lost one from a late one goes."""
COMMIT_SECONDS_MAX: Final = 0.25
"""A listener that came later than this after a todo became pending has seen it waiting: its commit was through by then."""

_log = structlog.get_logger("doorbell")


class Head(Protocol):
    """A todo that waits for somebody who is here."""

    @property
    def ring(self) -> Ring:
        """What its ring says."""
        ...

    @property
    def pending_seconds(self) -> float | None:
        """For how long it has been pending; None where it is not, but a claim may have it."""
        ...


class Seen(Protocol):
    """What a look at the database saw."""

    @property
    def heads(self) -> Sequence[Head]:
        """What waits, the oldest of each line."""
        ...

    @property
    def refused(self) -> Sequence[tuple[UUID, bytes]]:
        """Credentials that are no longer good."""
        ...

    @property
    def complete(self) -> bool:
        """Whether nothing else waits."""
        ...


Look = Callable[[Sequence[Scope], Set[tuple[UUID, bytes]]], Awaitable[Seen]]


class Doorbell:
    """One inbox of rings, one room of attendants."""

    def __init__(self, room: WaitingRoom, *, look: Look) -> None:
        self._room = room
        self._look = look
        self._inbox: list[Ring] = []
        self._rung = trio.Event()
        self._rung_at: dict[UUID, float] = {}
        self._rung_before: dict[UUID, float] = {}
        self.dropped = 0

    def ring(self, *rings: Ring) -> None:
        """Announces todos that became pending. Never waits, never fails: a ring that finds the inbox full is dropped.

        So is one that nobody of its endpoint attends for: whoever comes after it looks at the database after it too.
        """
        for endpoint_id, together in groupby(rings, attrgetter("endpoint_id")):
            if not self._room.attended(endpoint_id):
                continue
            heard = list(together)
            noted = heard[: max(0, RINGS_WAITING_MAX - len(self._inbox))]
            self.dropped += len(heard) - len(noted)
            self._inbox += noted
            self._rung.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor: fans rings out, and once a second looks for those who attend. Ends only by cancellation."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_once_a_second)
            task_status.started()
            while True:
                await self._rung.wait()
                self._rung = trio.Event()
                # What a batch rang is told together, in one turn of the scheduler.
                rings, self._inbox = self._inbox, []
                self._remember(self._room.ring(*rings))

    def _remember(self, rings: Sequence[Ring]) -> None:
        """Of many that come together each costs next to nothing: the oldest are forgotten by the thousand."""
        self._rung_at.update(dict.fromkeys([ring.todo_id for ring in rings], trio.current_time()))
        if len(self._rung_at) > REMEMBERED_MAX:
            self._rung_before, self._rung_at = self._rung_at, {}

    def _rang_at(self, ring: Ring) -> float:
        return self._rung_at.get(ring.todo_id, self._rung_before.get(ring.todo_id, -math.inf))

    async def _look_once_a_second(self) -> None:
        while True:
            await trio.sleep(LOOK_SECONDS)
            if self.dropped:
                _log.info(
                    "rings_dropped", rings=self.dropped, reason="too many at once; the look of this second makes up for them"
                )
                self.dropped = 0
            if len(self._room):
                scopes = self._room.look_begins()
                try:
                    seen = await self._look(scopes, self._room.credentials())
                except SwitchboardError:
                    self._room.look_ended(scopes, None)
                    continue  # the pulse tells that the database is away, and nobody can be told of work that nobody can see
                self._room.look_ended(scopes, [head.ring for head in seen.heads] if seen.complete else None)
                self._make_up_for(seen)

    def _make_up_for(self, seen: Seen) -> None:
        for endpoint_id, credential_sha256 in seen.refused:
            self._room.refuse(endpoint_id, credential_sha256)
        for head in seen.heads:
            if head.pending_seconds is not None:
                self._tell_if_it_is_news(head.ring, trio.current_time() - head.pending_seconds)
            self._room.wake(head.ring)

    def _tell_if_it_is_news(self, ring: Ring, since: float) -> None:
        if self._rang_at(ring) + RING_SECONDS_MAX < since:
            self._remember([ring])
            self._room.tell(ring, attended_before=since + COMMIT_SECONDS_MAX)
