"""chancy: the asynchronous executor, one queue, notifications on, the executor's concurrency raised."""

from __future__ import annotations

import asyncio
from typing import Any

import chancy
from chancy import Chancy, Job, Queue, Worker

from tests.bench.peers.measuring import BATCH, Tally, drain, enqueue, pick_ups_ms, tell

SECONDS = 2.0
JOBS = 2_000
CONCURRENCY = 100
PICK_UPS = 100
TALLY = Tally()


async def work(*, n: int) -> None:
    """The job: found by its name."""
    TALLY.done()


async def measure(given: dict[str, Any]) -> dict[str, Any]:
    """All lines."""
    decorated = chancy.job(queue="work")(work)
    async with Chancy(given["conninfo"]) as app:
        await app.migrate()
        queue = Queue("work", executor="chancy.executors.asyncex.AsyncExecutor", concurrency=CONCURRENCY)
        await app.declare(queue)
        job: Job = decorated.job.with_kwargs(n=1)

        async def one() -> None:
            await app.push(job)

        async def many(batch: int) -> None:
            async for _ in app.push_many([job] * batch):
                pass

        rates = await enqueue(one, many, SECONDS)
        async with app.pool.connection() as connection:
            await connection.execute("truncate chancy_jobs")
        for _ in range(JOBS // BATCH):
            await many(BATCH)

        async def worker() -> None:
            async with Worker(app, register_signal_handlers=False) as running:
                await running.wait_for_shutdown()

        drained, running = await drain(TALLY, worker, JOBS)
        await asyncio.sleep(1)
        latencies = await pick_ups_ms(TALLY, one, PICK_UPS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return rates | {"drain": drained} | latencies


if __name__ == "__main__":
    from tests.bench.peers.chancy import TALLY, measure  # the worker imports the job by its module's name

    tell(measure)
