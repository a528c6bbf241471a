"""procrastinate: asynchronous connector, a worker with concurrency as its documentation has it, and delete_jobs never."""

from __future__ import annotations

import asyncio
from typing import Any

import procrastinate

from tests.bench.peers.measuring import Tally, drain, enqueue, pick_ups_ms, tell

SECONDS = 2.0
JOBS = 2_000
CONCURRENCY = 16
PICK_UPS = 100


async def measure(given: dict[str, Any]) -> dict[str, Any]:
    """All lines."""
    tally = Tally()
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=given["conninfo"], max_size=CONCURRENCY))

    async def work(n: int) -> None:
        tally.done()

    task = app.task(name="work", queue="work")(work)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()

        async def one() -> None:
            await task.defer_async(n=1)

        async def many(batch: int) -> None:
            await task.batch_defer_async(*({"n": number} for number in range(batch)))

        rates = await enqueue(one, many, SECONDS)
        async with app.connector.pool.connection() as connection:
            await connection.execute("truncate procrastinate_jobs cascade")
        for _ in range(JOBS // 100):
            await many(100)
        worker = lambda: app.run_worker_async(  # noqa: E731
            queues=["work"], concurrency=CONCURRENCY, install_signal_handlers=False
        )
        drained, running = await drain(tally, worker, JOBS)
        await asyncio.sleep(1)
        latencies = await pick_ups_ms(tally, one, PICK_UPS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return rates | {"drain": drained} | latencies


if __name__ == "__main__":
    tell(measure)
