"""The doorbell as notifications to an attached session: what already waits, then every ring (R25).

Each is said twice: as `notifications/switchboard/todo_ready`, for programs, and as a message on Claude Code's channel, which
reads it to the model. Neither carries a payload (C54). They go out on the session's event stream beside what the SDK sends
there, and not through it: there they would wait in one line with the session's answers, and a stream that is not read would
hold up all of them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from switchboard.http.agent_doorbell import ring_out
from switchboard.http.hearing import Hearing
from switchboard.todo import Ring
from switchboard.waiting_room import Listener

TODO_READY: Final = "notifications/switchboard/todo_ready"
CHANNEL: Final = "notifications/claude/channel"
CHANNEL_CAPABILITY: Final = "claude/channel"
ATTACHED: Final = b": attached\r\n\r\n"
"""A comment: from here on the session hears every ring. Clients skip it, and proxies see that the stream is alive."""


async def ring_through(hearing: Hearing, listener: Listener, tell: Callable[[bytes], Awaitable[None]]) -> None:
    """Tells a session what it hears, until that is over. A client that does not read is cut off by the front door."""
    first = await hearing.waiting_if_seen(listener)
    await tell(ATTACHED + events_of(first))
    while (pieces := await hearing.news(listener, events_of)) is not None:
        for piece in pieces:
            await tell(piece)
        await hearing.pause(listener)


def events_of(rings: Sequence[Ring]) -> bytes:
    """The events of these rings, two for each."""
    return b"".join(_event(method, params) for ring in rings for method, params in _notifications_of(ring))


def _event(method: str, params: dict[str, Any]) -> bytes:
    message = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


def _notifications_of(ring: Ring) -> list[tuple[str, dict[str, Any]]]:
    told: dict[str, Any] = msgspec.to_builtins(ring_out(ring))
    # In one line, and quoted: the name of a queue is whatever its endpoint made it.
    content = f"A todo waits in the queue {json.dumps(ring.queue)}. Take it with the tool claim, todo_id {ring.todo_id}."
    meta = {name: value for name, value in told.items() if value is not None}
    return [(TODO_READY, told), (CHANNEL, {"content": content, "meta": meta})]
