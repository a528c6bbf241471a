"""The bounds that every request's body keeps: its size, its time, and how many large ones are in memory together."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from switchboard.errors import Invalid, TooLarge, Unavailable, Unsupported

BODY_SECONDS_MAX: Final = 30.0
BODY_OVERHEAD_BYTES: Final = 80 * 1024
"""What a body may hold beside its payload: every other field at its longest, escaped."""
LARGE_BODY_BYTES: Final = 256 * 1024
LARGE_BODIES_MAX: Final = 4
"""Requests with more than `LARGE_BODY_BYTES` that are read and answered at a time: a bound on memory, not on small work."""
LARGE_BODY_WAIT_SECONDS_MAX: Final = 10.0


class LargeBodies:
    """Room for a few requests with a large body, shared by everything that takes bodies."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(LARGE_BODIES_MAX)

    @asynccontextmanager
    async def room(self, size: int | None, *, chunked: bool) -> AsyncIterator[Callable[[int], None]]:
        """Lets only `LARGE_BODIES_MAX` requests with a large body, or one of unknown size, be in memory at a time.

        What it gives is to be told the size once the body is here: a small one takes no room any longer, however long its
        handler may wait.
        """
        if not chunked and (size or 0) <= LARGE_BODY_BYTES:
            yield lambda _size: None
            return
        borrower: object | None = object()
        with trio.move_on_after(LARGE_BODY_WAIT_SECONDS_MAX) as patience:
            await self._limiter.acquire_on_behalf_of(borrower)
        if patience.cancelled_caught:
            raise Unavailable(detail="Too many large bodies at once. Try again.")

        def leave_if_small(size: int) -> None:
            nonlocal borrower
            if borrower is not None and size <= LARGE_BODY_BYTES:
                self._limiter.release_on_behalf_of(borrower)
                borrower = None

        try:
            yield leave_if_small
        finally:
            leave_if_small(0)


async def read_body(chunks: AsyncIterable[bytes], *, declared: int | None, bytes_max: int) -> bytes:
    """The body, no more of it than `bytes_max`, within `BODY_SECONDS_MAX`."""
    check_size(declared or 0, bytes_max=bytes_max)
    parts: list[bytes] = []
    size = 0
    with trio.move_on_after(BODY_SECONDS_MAX) as patience:
        async for chunk in chunks:
            size += len(chunk)
            check_size(size, bytes_max=bytes_max)
            parts.append(chunk)
    if patience.cancelled_caught:
        raise Invalid(detail=f"The body did not arrive within {BODY_SECONDS_MAX:.0f} seconds.", field="body", status=400)
    return b"".join(parts)


def check_size(size: int, *, bytes_max: int) -> None:
    """Raises `TooLarge` for a body of more than `bytes_max`."""
    if size > bytes_max:
        raise TooLarge(detail=f"The body is over {bytes_max} bytes.")


def check_encoding(encoding: str | None) -> None:
    """Raises `Unsupported` for a body that is not sent as it is."""
    if (encoding or "").strip().lower() not in ("", "identity"):
        raise Unsupported(detail="Content-Encoding is not spoken here; send the body as it is.")
