"""The shell around handlers, on a real socket with handlers of the test's own: every error's answer, and R15's last look."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import attrs
import pytest
import trio
from msgspec import Struct, json

from switchboard.errors import (
    BlamesOne,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    RerunWhole,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from switchboard.http.access import Access
from switchboard.http.bodies import LargeBodies
from switchboard.http.call import Call, Reply, Route
from switchboard.http.delivery import delivering
from switchboard.http.requests import NoBody, NoQuery
from switchboard.http.shell import Shell
from switchboard.todo import Todo
from tests.http.door import Client, Door, open_door, until

SECRET = "what only the operator may know"


class Answer(Struct, frozen=True, kw_only=True):
    """What these handlers say."""

    said: str


@attrs.define(eq=False)
class Shop:
    """A door behind which one handler does what the test says, and the claims that were taken back."""

    door: Door | None = None
    handle: Callable[[], Awaitable[Reply]] | None = None
    undone: list[Todo] = attrs.field(factory=list)

    async def handler(self, _call: Call[Any, Any]) -> Reply:
        assert self.handle is not None
        return await self.handle()

    def undo(self, todos: Sequence[Todo]) -> None:
        self.undone.extend(todos)

    async def ask(self) -> tuple[int, dict[str, str], dict[str, Any]]:
        """One request, its status, headers and body."""
        assert self.door is not None
        status, headers, body = await self.door.ask(b"POST /do HTTP/1.1\r\nhost: house\r\ncontent-length: 0\r\n\r\n")
        return status, headers, json.decode(body, type=dict[str, Any])


@asynccontextmanager
async def open_shop() -> AsyncIterator[Shop]:
    """A shop that is closed in order."""

    async def nobody(_sha256: bytes) -> None:
        await trio.lowlevel.checkpoint()

    shop = Shop()
    shell = Shell(
        access=Access(find=nobody, operator_token="sbo_x"),
        large_bodies=LargeBodies(),
        payload_bytes_max=1 << 20,
        batch_body_bytes_max=1 << 20,
        hook_body_bytes_max=1 << 20,
    )
    route = Route(
        method="POST",
        path="/do",
        handler=shop.handler,
        who="anyone",
        summary="Does what the test says.",
        body=NoBody,
        body_optional=True,
        query=NoQuery,
        replies={200: Answer},
    )
    async with open_door(delivering(shell.application([route]), shop.undo)) as door:
        shop.door = door
        yield shop


def raises(error: Exception) -> Callable[[], Awaitable[Reply]]:
    async def handle() -> Reply:
        await trio.lowlevel.checkpoint()
        raise error

    return handle


def claims() -> tuple[Todo, ...]:
    values: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(Todo))
    return (Todo(**(values | {"id": uuid4(), "endpoint_id": uuid4(), "lease_token": uuid4(), "payload_read": True})),)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Unauthorized(detail="d"), 401, "unauthorized"),
        (Forbidden(detail="d"), 403, "forbidden"),
        (NotFound(), 404, "not_found"),
        (Conflict(detail="d", state="done", already=True), 409, "conflict"),
        (Invalid(detail="d", field="f"), 422, "invalid"),
        (Invalid(detail="d", status=400), 400, "invalid"),
        (TooLarge(detail="d"), 413, "too_large"),
        (Unsupported(detail="d"), 415, "unsupported"),
        (RateLimited(detail="d", retry_after_seconds=7), 429, "rate_limited"),
        (Unavailable(detail="d", retry_after_seconds=3), 503, "unavailable"),
        (OutcomeUnknown([]), 503, "unavailable"),
        (RerunWhole("40P01"), 503, "unavailable"),
        (BlamesOne("22003"), 422, "invalid"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_every_error_has_its_answer(logged: io.StringIO, error: Exception, status: int, code: str) -> None:
    """Problem+json with the contract's word; Retry-After on 429 and 503 (R32), WWW-Authenticate on 401."""
    async with open_shop() as shop:
        shop.handle = raises(error)
        answered, headers, body = await shop.ask()
    assert (answered, headers["content-type"]) == (status, "application/problem+json")
    assert (body["status"], body["code"]) == (status, code)
    assert body["detail"]
    waits = {429: "7", 503: str(getattr(error, "retry_after_seconds", 1))}
    assert headers.get("retry-after") == waits.get(status)
    assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert (body.get("state"), body.get("already")) == (("done", True) if status == 409 else (None, None))


async def test_a_bug_is_500_and_says_nothing(logged: io.StringIO) -> None:
    """R30, R28: the caller hears `internal` and no detail; the operator finds the whole story in the log; others are served."""
    async with open_shop() as shop:
        shop.handle = raises(RuntimeError(SECRET))
        status, headers, body = await shop.ask()
        assert (status, body["code"]) == (500, "internal")
        assert "detail" not in body
        assert SECRET not in str(body) + str(headers)

        async def fine() -> Reply:
            await trio.lowlevel.checkpoint()
            return Reply(content=Answer(said="fine"))

        shop.handle = fine
        assert (await shop.ask())[2] == {"said": "fine"}
    assert "request_failed" in logged.getvalue()
    assert SECRET in logged.getvalue()


async def test_an_answer_that_was_taken_keeps_its_claims(logged: io.StringIO) -> None:
    """R15: delivered is delivered."""
    async with open_shop() as shop:

        async def claim() -> Reply:
            await trio.lowlevel.checkpoint()
            return Reply(content=Answer(said="yours"), claims=claims())

        shop.handle = claim
        for _ in range(20):
            assert (await shop.ask())[0] == 200
    assert shop.undone == []


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_an_answer_that_nobody_took_is_undone(logged: io.StringIO, moment: str) -> None:
    """R15: the client hangs up before the answer is there, or while it is being written: its claims go back, once."""
    async with open_shop() as shop:
        assert shop.door is not None
        asked, go_on = trio.Event(), trio.Event()
        mine = claims()

        async def claim() -> Reply:
            asked.set()
            with trio.CancelScope(shield=True):  # as a transaction in its thread
                await go_on.wait()
            return Reply(content=Answer(said="x" * (8 << 20)), claims=mine)

        shop.handle = claim
        async with shop.door.client() as client:
            await client.send(b"POST /do HTTP/1.1\r\nhost: house\r\ncontent-length: 0\r\n\r\n")
            await asked.wait()
            if moment == "during":
                go_on.set()
                await client.stream.receive_some(1_000)
        go_on.set()
        await until(lambda: bool(shop.undone), seconds=10)
    assert shop.undone == list(mine)


async def test_a_client_that_asks_again_on_the_same_connection_keeps_its_claims(logged: io.StringIO) -> None:
    """Keep-alive: each answer is looked at for itself."""
    async with open_shop() as shop:

        async def claim() -> Reply:
            await trio.lowlevel.checkpoint()
            return Reply(content=Answer(said="yours"), claims=claims())

        shop.handle = claim
        assert shop.door is not None
        async with shop.door.client() as client:
            await _ask_twice(client)
    assert shop.undone == []


async def _ask_twice(client: Client) -> None:
    for _ in range(2):
        await client.send(b"POST /do HTTP/1.1\r\nhost: house\r\ncontent-length: 0\r\n\r\n")
        status, _, _ = await client.read()
        assert status == 200
