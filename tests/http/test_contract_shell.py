"""What stands around handlers, through either lane, with handlers of the test's own: every error's answer, R15's last look."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

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
from switchboard.http.call import Call, Reply
from tests.http.door import until
from tests.http.shop import LANES, Lane, Said, claims, open_shop

pytestmark = pytest.mark.parametrize("lane", LANES)

SECRET = "what only the operator may know"


Handle = Callable[[Call[Any, Any]], Awaitable[Reply]]


def raises(error: Exception) -> Handle:
    async def handle(_call: Call[Any, Any]) -> Reply:
        await trio.lowlevel.checkpoint()
        raise error

    return handle


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
async def test_every_error_has_its_answer(lane: Lane, logged: io.StringIO, error: Exception, status: int, code: str) -> None:
    """Problem+json with the contract's word; Retry-After on 429 and 503 (R32), WWW-Authenticate on 401."""
    async with open_shop(lane) as shop:
        shop.handle = raises(error)
        answered, headers, body = await shop.ask()
    assert (answered, headers["content-type"]) == (status, "application/problem+json")
    assert (body["status"], body["code"]) == (status, code)
    assert body["detail"]
    waits = {429: "7", 503: str(getattr(error, "retry_after_seconds", 1))}
    assert headers.get("retry-after") == waits.get(status)
    assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert (body.get("state"), body.get("already")) == (("done", True) if status == 409 else (None, None))


async def test_a_bug_is_500_and_says_nothing(lane: Lane, logged: io.StringIO) -> None:
    """R30, R28: the caller hears `internal` and no detail; the operator finds the whole story in the log; others are served."""
    async with open_shop(lane) as shop:
        shop.handle = raises(RuntimeError(SECRET))
        status, headers, body = await shop.ask()
        assert (status, body["code"]) == (500, "internal")
        assert "detail" not in body
        assert SECRET not in str(body) + str(headers)

        async def fine(_call: Call[Any, Any]) -> Reply:
            await trio.lowlevel.checkpoint()
            return Reply(content=Said(said="fine"))

        shop.handle = fine
        assert (await shop.ask())[2] == {"said": "fine"}
    assert "request_failed" in logged.getvalue()
    assert SECRET in logged.getvalue()


async def test_an_answer_that_was_taken_keeps_its_claims(lane: Lane, logged: io.StringIO) -> None:
    """R15: delivered is delivered."""
    async with open_shop(lane) as shop:

        async def claim(_call: Call[Any, Any]) -> Reply:
            await trio.lowlevel.checkpoint()
            return Reply(content=Said(said="yours"), claims=claims())

        shop.handle = claim
        for _ in range(20):
            assert (await shop.ask())[0] == 200
    assert shop.undone == []


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_an_answer_that_nobody_took_is_undone(lane: Lane, logged: io.StringIO, moment: str) -> None:
    """R15: the client hangs up before the answer is there, or while it is being written: its claims go back, once."""
    async with open_shop(lane) as shop:
        asked, go_on = trio.Event(), trio.Event()
        mine = claims()

        async def claim(_call: Call[Any, Any]) -> Reply:
            asked.set()
            with trio.CancelScope(shield=True):  # as a transaction in its thread
                await go_on.wait()
            return Reply(content=Said(said="x" * (8 << 20)), claims=mine)

        shop.handle = claim
        async with shop.door.client() as client:
            await client.send(shop.request())
            await asked.wait()
            if moment == "during":
                go_on.set()
                await client.stream.receive_some(1_000)
        go_on.set()
        await until(lambda: bool(shop.undone), seconds=10)
    assert shop.undone == list(mine)


async def test_a_client_that_asks_again_on_the_same_connection_keeps_its_claims(lane: Lane, logged: io.StringIO) -> None:
    """Keep-alive: each answer is looked at for itself."""
    async with open_shop(lane) as shop:

        async def claim(_call: Call[Any, Any]) -> Reply:
            await trio.lowlevel.checkpoint()
            return Reply(content=Said(said="yours"), claims=claims())

        shop.handle = claim
        async with shop.door.client() as client:
            for _ in range(2):
                await client.send(shop.request())
                assert (await client.read())[0] == 200
    assert shop.undone == []
