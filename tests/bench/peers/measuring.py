"""What every peer is asked, the same way: standard library only, since it runs in the peer's own environment.

A peer is three things: how it creates one job, how it creates a batch (None where it cannot), and how it works until told to
stop, calling `done()` for each job.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

CALLERS: Final = 64
BATCH: Final = 100
WAIT_SECONDS_MAX: Final = 60.0


class Tally:
    """Counts jobs that were run, and tells who waits for a number of them."""

    def __init__(self) -> None:
        self.count = 0
        self.first_at = self.last_at = 0.0
        self._changed = asyncio.Event()

    def done(self) -> None:
        """One job was run."""
        self.last_at = time.perf_counter()
        if not self.count:
            self.first_at = self.last_at
        self.count += 1
        self._changed.set()

    async def until(self, count: int) -> None:
        """Waits until so many were run."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while self.count < count:
                self._changed.clear()
                await self._changed.wait()


async def per_second(one: Callable[[], Awaitable[Any]], callers: int, seconds: float) -> float:
    """Calls a second, of so many callers at once."""
    made = 0

    async def call() -> None:
        nonlocal made
        while time.perf_counter() < ends:
            await one()
            made += 1

    await one()
    began = time.perf_counter()
    ends = began + seconds
    await asyncio.gather(*(call() for _ in range(callers)))
    return made / (time.perf_counter() - began)


async def enqueue(
    one: Callable[[], Awaitable[Any]], many: Callable[[int], Awaitable[Any]] | None, seconds: float
) -> dict[str, float | None]:
    """How fast jobs go in."""
    return {
        "enqueue_1": await per_second(one, 1, seconds),
        "enqueue_64": await per_second(one, CALLERS, seconds),
        "bulk_100": None if many is None else BATCH * await per_second(lambda: many(BATCH), 1, seconds),
    }


async def drain(tally: Tally, work: Callable[[], Coroutine[Any, Any, Any]], jobs: int) -> tuple[float, asyncio.Task[Any]]:
    """Jobs a second, from the first to the last of those that wait; and the worker, which goes on."""
    tally.count = 0
    task = asyncio.create_task(work())
    await tally.until(jobs)
    return (jobs - 1) / (tally.last_at - tally.first_at), task


async def pick_ups_ms(tally: Tally, one: Callable[[], Awaitable[Any]], times: int) -> dict[str, float]:
    """From the call of a create, with everything idle, to the job's start."""
    took = []
    for _ in range(times):
        await asyncio.sleep(0.02)
        before, began = tally.count, time.perf_counter()
        await one()
        await tally.until(before + 1)
        took.append(1000 * (tally.last_at - began))
    centiles = statistics.quantiles(took, n=100)
    return {"pick_up_p50_ms": centiles[49], "pick_up_p99_ms": centiles[98]}


def tell(measure: Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]) -> None:
    """Runs a peer as its script does: the argument is JSON, and so is what it prints last."""
    found = asyncio.run(measure(json.loads(sys.argv[1])))
    print("\n" + json.dumps(found), flush=True)
