"""Opens the protocol: imports the SDK beside everybody else's work, and holds its sessions for as long as a block lasts."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from switchboard.http.exchange import Receive, Send
from switchboard.mcp.sessions import Sessions
from switchboard.mcp.tools import Toolbox
from switchboard.waiting_room import WaitingRoom

_PROTOCOL: Final = "switchboard.mcp.protocol"


@attrs.frozen(kw_only=True)
class Spoken:
    """The protocol while it is open."""

    serve: Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
    """Has the SDK serve one request."""
    sessions: Sessions


@asynccontextmanager
async def open_protocol(*, toolbox: Toolbox, room: WaitingRoom, body_bytes_max: int) -> AsyncIterator[Spoken]:
    """The protocol, and no sessions yet. At the end of the block all of them are gone."""
    module = await trio.to_thread.run_sync(partial(importlib.import_module, _PROTOCOL))
    protocol = module.Protocol(toolbox=toolbox, body_bytes_max=body_bytes_max)
    async with protocol.run(), trio.open_nursery() as nursery:
        yield Spoken(serve=protocol.serve, sessions=Sessions(room=room, discard=protocol.discard, nursery=nursery))
        nursery.cancel_scope.cancel()
