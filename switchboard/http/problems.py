"""Errors on their way out, whatever carries them: which error a caller hears of, and the headers that go with it."""

from __future__ import annotations

from typing import Any

import structlog

from switchboard.errors import (
    BlamesOne,
    Invalid,
    OutcomeUnknown,
    QueueError,
    RateLimited,
    RerunWhole,
    Unauthorized,
    Unavailable,
)
from switchboard.http import wire
from switchboard.http.call import Call, Handler, Reply

MEDIA = "application/problem+json"

_log = structlog.get_logger("http")


async def reply_of(handler: Handler, call: Call[Any, Any], *, place: str) -> Reply:
    """The handler's reply. Raises only what a caller may be told, a `QueueError`, or a bug."""
    try:
        return await handler(call)
    except (OutcomeUnknown, RerunWhole):  # from a transaction that did not go through the ledger
        raise Unavailable(detail="The database could not finish this. Try again.", outcome_unknown=True) from None
    except BlamesOne as blame:
        _log.warning("request_refused_by_database", route=place, reason=str(blame))
        raise Invalid(detail="The database cannot store this.") from None


def headers_of(error: QueueError) -> tuple[tuple[str, str], ...]:
    """What the answer with this error says beside its body."""
    if isinstance(error, Unauthorized):
        return (("WWW-Authenticate", "Bearer"),)
    if isinstance(error, Unavailable | RateLimited):
        return (("Retry-After", str(error.retry_after_seconds)),)
    return ()


async def send_problem(send: Any, error: QueueError, *more: tuple[str, str]) -> None:
    """Answers an ASGI request with this error."""
    body = wire.encode(wire.problem_out(error))
    fields = (("Content-Type", MEDIA), ("Content-Length", str(len(body))), *headers_of(error), *more)
    headers = [(name.lower().encode(), value.encode()) for name, value in fields]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_nothing(send: Any) -> None:
    """Answers an ASGI request that all is well, and no more."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
