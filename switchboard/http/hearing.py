"""What an attached session hears, whatever carries it: first what already waits, then every ring (R25).

What is said is a hint: work is still only handed out by a claim. A session that was cut off loses nothing but time, since
attaching begins with what already waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import trio

from switchboard.endpoint import Endpoint
from switchboard.errors import SwitchboardError
from switchboard.http.agent_claims import queues_in_scope
from switchboard.http.call import Transact
from switchboard.store import attending
from switchboard.todo import Ring
from switchboard.waiting_room import SHOWN_MAX, Listener, Told, WaitingRoom

PIECE_BYTES_MAX: Final = 128 * 1024
"""Of an answer, sent at a time: what a client that does not read costs beside what it was told."""
LOOK_AGAIN_SECONDS: Final = 1.0
"""So long after the last ring that it missed a listener looks at what waits: while a flood lasts it hears enough of it."""

SHOWN_SECONDS: Final = 3.0
"""So long after its first look a look for everybody may still take for news what that one showed."""

Say = Callable[[Sequence[Ring]], bytes]
"""Puts rings into words."""


class Hearing:
    """Takes listeners in, and tells each of them what it has heard."""

    def __init__(self, *, room: WaitingRoom, transact: Transact) -> None:
        self._room = room
        self._transact = transact

    def attend(self, endpoint: Endpoint, credential_sha256: bytes, queues: Sequence[str] = ()) -> Listener:
        """A listener of this endpoint, for these queues or all in its scope. Whoever asks for one has it `leave`.

        Raises `Forbidden` for a queue out of the endpoint's scope.
        """
        listener = Listener(
            endpoint_id=endpoint.id,
            credential_sha256=credential_sha256,
            queues=frozenset(queues_in_scope(endpoint, queues)),
            owner=endpoint.name,
            attended_at=trio.current_time(),
        )
        self._room.attend(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """It hears no more."""
        self._room.leave(listener)

    async def waiting(self, listener: Listener) -> Sequence[Ring]:
        """What waits now, bounded."""
        queues = tuple(listener.queues) or None
        rings = await self._transact(
            lambda session: attending.already_waiting(session, listener.endpoint_id, queues, listener.owner, limit=SHOWN_MAX)
        )
        listener.shown = {ring.todo_id for ring in rings}
        return rings

    async def waiting_if_seen(self, listener: Listener) -> Sequence[Ring]:
        """What waits now; nothing while the database is away, and then what waits is news as soon as it is seen."""
        try:
            return await self.waiting(listener)
        except SwitchboardError:
            with trio.move_on_after(LOOK_AGAIN_SECONDS):
                await listener.sent_off.wait()
            listener.look_again = True
            listener.bell.set()
            return ()

    async def news(self, listener: Listener, say: Say, *, seconds_max: float = math.inf) -> Iterable[bytes] | None:
        """What it heard since it was told last, in words, piece by piece.

        No pieces when `seconds_max` were quiet; None once it is over (R17).
        """
        if self._over(listener):
            return None
        look_in = self._look_in(listener)
        with trio.move_on_after(min(seconds_max, look_in)) as quiet:
            await listener.bell.wait()
        if quiet.cancelled_caught and look_in > seconds_max:
            return ()
        if self._over(listener):  # what it heard before is not told any more either
            return None
        if trio.current_time() > listener.attended_at + SHOWN_SECONDS:
            listener.shown = frozenset()
        told = listener.take()
        if listener.missed:
            listener.missed, listener.missed_at = False, trio.current_time()
        if self._look_in(listener) <= 0:
            listener.look_again = False
            missed = await self.waiting_if_seen(listener)
            if missed:
                told.append(Told(missed))
        return _pieces(told, say)

    async def pause(self, listener: Listener) -> None:
        """After it was told something: what follows gathers for a while, the longer the more of them there are."""
        with trio.move_on_after(self._room.pace_seconds()):
            await listener.sent_off.wait()

    def _look_in(self, listener: Listener) -> float:
        """In how many seconds it is to look at what it missed; for ever where it missed nothing."""
        if not listener.look_again:
            return math.inf
        return max(0.0, listener.missed_at + LOOK_AGAIN_SECONDS - trio.current_time())

    def _over(self, listener: Listener) -> bool:
        return self._room.closed or listener.refused


def _pieces(told: Sequence[Told], say: Say) -> Iterator[bytes]:
    """What was told, in words; the words of rings that many hear of are made once."""
    gathered: list[bytes] = []
    size = 0
    for some in told:
        words = some.in_words(say)
        gathered.append(words)
        size += len(words)
        if size >= PIECE_BYTES_MAX:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
