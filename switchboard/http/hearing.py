"""What an attached session hears, whatever carries it: first what already waits, then every ring (R25).

What is said is a hint: work is still only handed out by a claim. A session that was cut off loses nothing but time, since
attaching begins with what already waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import trio

from switchboard.endpoint import Endpoint
from switchboard.errors import SwitchboardError
from switchboard.http.agent_claims import queues_in_scope
from switchboard.http.call import Transact
from switchboard.store import attending
from switchboard.todo import Ring
from switchboard.waiting_room import RINGS_BUFFERED_MAX, Listener, WaitingRoom

LOOK_AGAIN_SECONDS: Final = 1.0


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
        return await self._transact(
            lambda session: attending.already_waiting(
                session, listener.endpoint_id, queues, listener.owner, limit=RINGS_BUFFERED_MAX
            )
        )

    async def news(self, listener: Listener, *, seconds_max: float = math.inf) -> Sequence[Ring] | None:
        """What it heard since it was told last: nothing when `seconds_max` were quiet, None once it is over (R17)."""
        if self._over(listener):
            return None
        with trio.move_on_after(seconds_max) as quiet:
            await listener.bell.wait()
        if quiet.cancelled_caught:
            return ()
        if self._over(listener):  # what it heard before is not told any more either
            return None
        rings: Sequence[Ring] = listener.take()
        if listener.look_again:
            listener.look_again = False
            rings = await self._look_again(listener)
        return rings

    def _over(self, listener: Listener) -> bool:
        return self._room.closed or listener.refused

    async def _look_again(self, listener: Listener) -> Sequence[Ring]:
        try:
            return await self.waiting(listener)
        except SwitchboardError:
            await trio.sleep(LOOK_AGAIN_SECONDS)
            listener.look_again = True
            listener.bell.set()
            return ()
