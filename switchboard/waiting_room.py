"""Who waits for work, and who hears a ring (R25). All of it synchronous: the doorbell, claims and streams do the waiting.

Two kinds of attendants, found by endpoint first and queue second:

- a **waiter** is a claim that found nothing. Of these a ring wakes one: the one who has waited longest of those who may
  claim the todo. One that then does not claim passes the wake on.
- a **listener** is an attached session (an event stream, over HTTP or MCP). All that may claim the todo hear of it, each
  through a small buffer; one whose buffer is full is told to look again instead.

Whoever is neither of the two stays only to be told when it has to go: an MCP session, with or without a stream.

Nobody here is looked through for a ring that does not concern it: ten thousand waiters cost a ring no more than one does. What
rang together is told together: fifty listeners cost a batch of a hundred rings fifty steps, and its words are made once.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import chain, count
from operator import attrgetter
from typing import Final
from uuid import UUID

import attrs
import trio

from switchboard.todo import Ring

RINGS_BUFFERED_MAX: Final = 250
"""A listener that is so much behind notes no more. A ring is a hint: beyond this one look at what waits says as much."""
SHOWN_MAX: Final = 100
"""What waits already, as far as a listener is told of it when it attaches, or has missed something."""
LOOK_FOR_LISTENERS: Final = 25
PACE_SECONDS_MIN: Final = 0.01
PACE_SECONDS_PER_LISTENER: Final = 0.02
PACE_SECONDS_MAX: Final = 1.0
QUIET_SECONDS_MAX: Final = 2.0
"""So long after the last look it is still believed that a line is quiet; the next look is due before."""

Line = tuple[UUID, str | None, str | None]
"""Endpoint, queue (None: any of its queues), and the owner for whom a todo is assigned (None: todos that are anybody's)."""

_seat = attrgetter("seat")


@attrs.define(kw_only=True, eq=False)
class Attendant:
    """Somebody who is there for one endpoint, by one credential, for some queues (empty: any) and one owner."""

    endpoint_id: UUID
    credential_sha256: bytes = attrs.field(repr=False)
    queues: frozenset[str]
    owner: str
    bell: trio.Event = attrs.field(factory=trio.Event)
    refused: bool = False
    """Its credential is no longer good (R17)."""
    sent_off: trio.Event = attrs.field(factory=trio.Event)
    """It is refused, or the house closes."""

    def lines(self) -> Iterator[Line]:
        """Every line that it stands in."""
        for queue in self.queues or (None,):
            yield self.endpoint_id, queue, None
            yield self.endpoint_id, queue, self.owner


@attrs.define(kw_only=True, eq=False)
class Waiter(Attendant):
    """One waiting claim. `heard` is the ring that woke it, until it has acted on it."""

    heard: Ring | None = None
    seat: int = 0


@attrs.frozen(eq=False)
class Told:
    """Rings of one queue that are told together to all who hear them."""

    rings: Sequence[Ring]
    _words: dict[Callable[[Sequence[Ring]], bytes], bytes] = attrs.field(factory=dict, init=False, repr=False)

    def in_words(self, say: Callable[[Sequence[Ring]], bytes]) -> bytes:
        """What `say` makes of them: made for the first who asks, the same for all others."""
        words = self._words.get(say)
        if words is None:
            words = self._words[say] = say(self.rings)
        return words


@attrs.define(kw_only=True, eq=False)
class Listener(Attendant):
    """One attached session. `look_again` says that it missed rings, and has to look at what waits."""

    attended_at: float = 0.0
    """On Trio's clock. It has looked at what waited then."""
    shown: Set[UUID] = frozenset()
    """What that look showed it, for as long as another look may take any of it for news."""
    look_again: bool = False
    missed: bool = False
    """It missed one since it took last."""
    missed_at: float = -math.inf
    """On Trio's clock as well: when it was known to have missed one last."""
    _told: list[Told] = attrs.field(factory=list)
    _behind: int = 0

    def hear(self, told: Told) -> None:
        """Notes the rings, or that there were too many to note."""
        if self._behind < RINGS_BUFFERED_MAX:
            self._behind += len(told.rings)
            self._told.append(told)
        else:
            self.look_again = self.missed = True
        self.bell.set()

    def take(self) -> list[Told]:
        """What it heard since it took last. The bell rings for the next."""
        taken, self._told, self._behind = self._told, [], 0
        self.bell = trio.Event()
        return taken


@attrs.frozen(kw_only=True)
class Scope:
    """A line that somebody stands in, how many todos its attendants could use, and how many of them are waiters."""

    endpoint_id: UUID
    queue: str | None
    owner: str | None
    wanted: int
    waiters: int = 0


class WaitingRoom:
    """All attendants of this process."""

    def __init__(self) -> None:
        self._waiting: dict[Line, list[Waiter]] = {}  # those not woken yet, the oldest first
        self._listening: dict[Line, dict[Listener, None]] = {}
        self._present: dict[UUID, dict[Attendant, None]] = {}
        self._seats = count()
        self._listeners = 0
        # Lines in which the last look found nothing, if they have been attended and not rung ever since; and until when.
        self._quiet: set[Line] = set()
        self._quiet_until = -math.inf
        self._rung: set[Line] = set()
        self.closed = False

    def enter(self, waiter: Waiter) -> None:
        """Sits down last. Enter before the first look at the database, so that no ring falls between the two."""
        waiter.seat = next(self._seats)
        self._admit(waiter)
        self._line_up(waiter)

    def is_quiet(self, waiter: Waiter) -> bool:
        """Whether nothing waits for it, as far as the last look for others in all of its lines tells.

        Somebody has stood in each of them ever since, so that no ring was missed. What no ring tells (a lease that lapsed
        meanwhile, a ring that was lost) the next look sees, which is for this waiter too. So ten thousand who ask again
        and again cost the database nothing.
        """
        return trio.current_time() < self._quiet_until and all(line in self._quiet for line in waiter.lines())

    def look_begins(self) -> list[Scope]:
        """What to look for, for everybody."""
        self._rung = set()
        return self.scopes()

    def look_ended(self, scopes: Iterable[Scope], found: Iterable[Ring] | None) -> None:
        """What a look for these scopes has found; None: that nobody can tell."""
        self._quiet = set()
        if found is not None:
            lines = {(scope.endpoint_id, scope.queue, scope.owner) for scope in scopes}
            attended = {line for line in lines if line in self._waiting or line in self._listening}
            self._quiet = attended.difference(self._rung, chain.from_iterable(_lines_of(ring) for ring in found))
            self._quiet_until = trio.current_time() + QUIET_SECONDS_MAX

    def wait_again(self, waiter: Waiter) -> None:
        """Back to its old seat, before it looks at what it was woken for: whatever rings meanwhile wakes it again."""
        waiter.bell = trio.Event()
        if self.closed or waiter.refused:
            waiter.bell.set()
        else:
            self._line_up(waiter)

    def attend(self, listener: Listener) -> None:
        """Hears every ring from now on. Attend before the first look at the database, so that no ring falls between the two."""
        self._admit(listener)
        self._listeners += 1
        for line in listener.lines():
            self._listening.setdefault(line, {})[listener] = None
        if self.closed:
            _send_off(listener)

    def stay(self, attendant: Attendant) -> None:
        """Is here for neither work nor rings: only to be told when its credential is no longer good, or the house closes."""
        self._admit(attendant)
        if self.closed:
            _send_off(attendant)

    def leave(self, attendant: Attendant) -> None:
        """Forgets it at once. A ring that a waiter has not acted upon yet goes to the next one."""
        present = self._present[attendant.endpoint_id]
        del present[attendant]
        if not present:
            del self._present[attendant.endpoint_id]
        if isinstance(attendant, Waiter):
            self._step_out(attendant)
            if attendant.heard is not None:
                self.wake(attendant.heard)
        elif isinstance(attendant, Listener):
            self._listeners -= 1
            for line in attendant.lines():
                listeners = self._listening[line]
                del listeners[attendant]
                if not listeners:
                    del self._listening[line]
                    self._unattended(line)

    def ring(self, *rings: Ring) -> Sequence[Ring]:
        """All listeners that may claim one of these todos hear of it, and one waiter is woken for each.

        Returns those of which listeners were told.
        """
        alike: dict[tuple[UUID, str, str | None], list[Ring]] = {}
        for ring in rings:
            alike.setdefault((ring.endpoint_id, ring.queue, ring.assignee), []).append(ring)
        told: list[Ring] = []
        for together in alike.values():
            self._rung.update(_lines_of(together[0]))
            self._quiet.difference_update(_lines_of(together[0]))
            what = Told(together)
            listeners = list(self._listeners_of(together[0]))
            for listener in listeners:
                listener.hear(what)
            if listeners:
                told += together
            for ring in together:
                if not self.wake(ring):  # nobody is left for it, nor for those that are like it
                    break
        return told

    def tell(self, ring: Ring, *, attended_before: float = math.inf) -> None:
        """All listeners that may claim this todo hear of it; but for those that came later than that, or saw it waiting."""
        told = Told([ring])
        for listener in self._listeners_of(ring):
            if listener.attended_at < attended_before and ring.todo_id not in listener.shown:
                listener.hear(told)

    def _listeners_of(self, ring: Ring) -> Iterator[Listener]:
        return chain.from_iterable(self._listening.get(line, ()) for line in _lines_of(ring))

    def wake(self, ring: Ring) -> bool:
        """Wakes the oldest waiter that may claim this todo and has not been woken yet; whether there was one."""
        first = [self._waiting[line][0] for line in _lines_of(ring) if line in self._waiting]
        if first:
            waiter = min(first, key=_seat)
            self._step_out(waiter)
            waiter.heard = ring
            waiter.bell.set()
        return bool(first)

    def pace_seconds(self) -> float:
        """How long a listener that has just been told something leaves what follows to gather.

        Telling costs each of them as much, however many rings it is: together they are to take a small part of a core only.
        """
        return min(PACE_SECONDS_MAX, max(PACE_SECONDS_MIN, PACE_SECONDS_PER_LISTENER * (self._listeners - 1)))

    def attended(self, endpoint_id: UUID) -> bool:
        """Whether anybody is here for this endpoint."""
        return endpoint_id in self._present

    def scopes(self) -> list[Scope]:
        """Every line that somebody stands in; for waiters as many todos as there are of them, for listeners some."""
        lines = dict.fromkeys(chain(self._waiting, self._listening))
        return [
            Scope(
                endpoint_id=line[0],
                queue=line[1],
                owner=line[2],
                wanted=max(len(self._waiting.get(line, ())), LOOK_FOR_LISTENERS if line in self._listening else 0),
                waiters=len(self._waiting.get(line, ())),
            )
            for line in lines
        ]

    def credentials(self) -> set[tuple[UUID, bytes]]:
        """By what those who are here came in."""
        return {(who.endpoint_id, who.credential_sha256) for who in self._everybody()}

    def refuse(self, endpoint_id: UUID, credential_sha256: bytes | None = None) -> None:
        """This credential of the endpoint (None: any) is no longer good: whoever came in by it is told to go (R17)."""
        for who in self._present.get(endpoint_id, ()):
            if credential_sha256 in (None, who.credential_sha256):
                who.refused = True
                _send_off(who)

    def close(self) -> None:
        """The house closes: waiters look one last time, and everybody goes."""
        self.closed = True
        for who in self._everybody():
            _send_off(who)

    def __len__(self) -> int:
        return sum(len(present) for present in self._present.values())

    def _everybody(self) -> Iterable[Attendant]:
        return chain.from_iterable(self._present.values())

    def _admit(self, attendant: Attendant) -> None:
        self._present.setdefault(attendant.endpoint_id, {})[attendant] = None

    def _line_up(self, waiter: Waiter) -> None:
        for line in waiter.lines():
            insort(self._waiting.setdefault(line, []), waiter, key=_seat)

    def _step_out(self, waiter: Waiter) -> None:
        for line in waiter.lines():
            waiting = self._waiting.get(line, [])
            place = bisect_left(waiting, waiter.seat, key=_seat)
            if place < len(waiting) and waiting[place] is waiter:
                del waiting[place]
                if not waiting:
                    del self._waiting[line]
                    self._unattended(line)

    def _unattended(self, line: Line) -> None:
        """Rings of an endpoint that nobody attends for are not even noted: it is not known any longer that it is quiet."""
        if line not in self._waiting and line not in self._listening:
            self._quiet.discard(line)


def _send_off(attendant: Attendant) -> None:
    attendant.sent_off.set()
    attendant.bell.set()


def _lines_of(ring: Ring) -> tuple[Line, Line]:
    """The lines of those who may claim the todo that rang."""
    return (ring.endpoint_id, ring.queue, ring.assignee), (ring.endpoint_id, None, ring.assignee)
