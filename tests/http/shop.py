"""A door behind which one handler does what a test says, reached through either lane."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

import attrs
import trio
from msgspec import Struct, json

from switchboard.endpoint import Endpoint, digest, new_credential
from switchboard.http.access import Access
from switchboard.http.bodies import LargeBodies
from switchboard.http.call import Call, Reply, Route
from switchboard.http.delivery import delivering
from switchboard.http.desk import Desk
from switchboard.http.express_lane import ExpressLane
from switchboard.http.requests import NoQuery
from switchboard.http.shell import quart_application
from switchboard.todo import Todo
from tests.http.door import Door, open_door

Lane = Literal["express", "general"]
LANES: tuple[Lane, ...] = ("express", "general")

GENERAL = b"Connection: keep-alive, te\r\nTE: trailers\r\n"
"""Lines of a good request that the express lane leaves to the general one."""


class Said(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What these handlers take and say."""

    said: str = ""
    wait_seconds: float = 0


@attrs.define(kw_only=True, eq=False)
class Shop:
    """The door, the handler of the moment, the claims that were taken back, and the requests that came the general way."""

    lane: Lane
    credential: str = attrs.field(factory=new_credential)
    door: Door = attrs.field(init=False)
    handle: Callable[[Call[Any, Any]], Awaitable[Reply]] = attrs.field(init=False)
    undone: list[Todo] = attrs.field(factory=list)
    general: int = 0

    def request(self, body: bytes = b"", *, headers: bytes = b"", path: bytes = b"/v1/do", length: int | None = None) -> bytes:
        """A request, for the lane that this shop is tried through."""
        lines = headers + (GENERAL if self.lane == "general" else b"")
        size = len(body) if length is None else length
        start = b"POST " + path + b" HTTP/1.1\r\nHost: house\r\nAuthorization: Bearer " + self.credential.encode() + b"\r\n"
        return start + lines + b"Content-Length: %d\r\n\r\n" % size + body

    async def ask(self) -> tuple[int, dict[str, str], dict[str, Any]]:
        """One request, its status, headers and body."""
        status, headers, body = await self.door.ask(self.request())
        return status, headers, json.decode(body, type=dict[str, Any])

    def undo(self, todos: Sequence[Todo]) -> None:
        """Takes claims back."""
        self.undone.extend(todos)

    async def handler(self, call: Call[Any, Any]) -> Reply:
        """The handler of the moment."""
        return await self.handle(call)


@asynccontextmanager
async def open_shop(lane: Lane, *, drain_seconds: float = 5.0, payload_bytes_max: int = 1 << 20) -> AsyncIterator[Shop]:
    """A shop that is closed in order. Both lanes are open, whichever it is tried through."""
    shop = Shop(lane=lane)
    caller = Endpoint(id=uuid4(), name="caller", created_at=datetime.now(UTC))

    async def find(sha256: bytes) -> Endpoint | None:
        await trio.lowlevel.checkpoint()
        return caller if sha256 == digest(shop.credential) else None

    access = Access(find=find, operator_token="sbo_x")
    desk = Desk(access=access, large_bodies=LargeBodies(), payload_bytes_max=payload_bytes_max, batch_body_bytes_max=0)
    routes = [
        Route(
            method="POST",
            path=path,
            handler=shop.handler,
            who="agent",
            summary="Does what the test says.",
            body=Said,
            body_optional=True,
            query=NoQuery,
            replies={200: Said},
        )
        for path in ("/v1/do", "/v1/{id}/do")
    ]
    app = delivering(quart_application(desk, routes, hook_body_bytes_max=1 << 20), shop.undo)

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        shop.general += 1
        await app(scope, receive, send)

    express = ExpressLane(desk=desk, routes=routes, undo=shop.undo)
    async with open_door(counted, express=express.serve, drain_seconds=drain_seconds) as door:
        shop.door = door
        yield shop


def claims() -> tuple[Todo, ...]:
    """One claimed todo, as an answer carries it."""
    values: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(Todo))
    return (Todo(**(values | {"id": uuid4(), "endpoint_id": uuid4(), "lease_token": uuid4(), "payload_read": True})),)
