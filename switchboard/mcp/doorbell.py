"""The doorbell as notifications to an attached session: what already waits, then every ring (R25).

Each is said twice: as `notifications/switchboard/todo_ready`, for programs, and as a message on Claude Code's channel, which
reads it to the model. Neither carries a payload (C54).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog
import trio

from switchboard.errors import SwitchboardError
from switchboard.http.agent_doorbell import ring_out
from switchboard.http.hearing import LOOK_AGAIN_SECONDS, Hearing
from switchboard.mcp.exchange import Notify
from switchboard.todo import Ring
from switchboard.waiting_room import Listener

TODO_READY: Final = "notifications/switchboard/todo_ready"
CHANNEL: Final = "notifications/claude/channel"
CHANNEL_CAPABILITY: Final = "claude/channel"
NOTIFY_SECONDS_MAX: Final = 15.0
"""A client that does not take a notification in this time does not read. The front door has cut off its socket before."""

_log = structlog.get_logger("mcp")


async def ring_through(hearing: Hearing, listener: Listener, notify: Notify) -> bool:
    """Tells a session what it hears, until it is over. False: its client does not read, and the session has to end."""
    rings: Sequence[Ring] | None = await _first(hearing, listener)
    while rings is not None:
        for ring in rings:
            with trio.move_on_after(NOTIFY_SECONDS_MAX) as patience:
                for method, params in notifications_of(ring):
                    await notify(method, params)
            if patience.cancelled_caught:
                _log.info("session_does_not_read", endpoint_id=str(listener.endpoint_id))
                return False
        rings = await hearing.news(listener)
    return True


def notifications_of(ring: Ring) -> list[tuple[str, dict[str, Any]]]:
    """The two notifications of a ring: method and parameters."""
    told: dict[str, Any] = msgspec.to_builtins(ring_out(ring))
    # In one line, and quoted: the name of a queue is whatever its endpoint made it.
    content = f"A todo waits in the queue {json.dumps(ring.queue)}. Take it with the tool claim, todo_id {ring.todo_id}."
    meta = {name: value for name, value in told.items() if value is not None}
    return [(TODO_READY, told), (CHANNEL, {"content": content, "meta": meta})]


async def _first(hearing: Hearing, listener: Listener) -> Sequence[Ring]:
    try:
        return await hearing.waiting(listener)
    except SwitchboardError:  # the database is away: the stream stays, and looks again when there is something to see
        await trio.sleep(LOOK_AGAIN_SECONDS)
        listener.look_again = True
        listener.bell.set()
        return ()
