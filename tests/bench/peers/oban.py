"""oban: a pool of ten, one queue with a limit of 64."""

from __future__ import annotations

import asyncio
from typing import Any

import oban
from oban import Oban
from oban.schema import install_sql

from tests.bench.peers.measuring import BATCH, Tally, drain, enqueue, pick_ups_ms, tell

SECONDS = 2.0
JOBS = 2_000
LIMIT = 64
PICK_UPS = 100
TALLY = Tally()


async def work(n: int) -> None:
    """The job."""
    TALLY.done()


WORKER: Any = oban.job(queue="work")(work)


async def measure(given: dict[str, Any]) -> dict[str, Any]:
    """All lines."""
    pool = await Oban.create_pool(dsn=given["conninfo"], max_size=10)
    async with pool.connection() as connection:
        await connection.execute(install_sql())
    client = Oban(pool=pool, name="client")

    async def one() -> None:
        await client.enqueue(WORKER.new(1))

    async def many(batch: int) -> None:
        await client.enqueue_many([WORKER.new(1) for _ in range(batch)])

    async with client:
        rates = await enqueue(one, many, SECONDS)
        async with pool.connection() as connection:
            await connection.execute("truncate oban_jobs")
        for _ in range(JOBS // BATCH):
            await many(BATCH)
        server = Oban(pool=pool, name="server", queues={"work": LIMIT})

        async def serve() -> None:
            async with server:
                await asyncio.Event().wait()

        drained, running = await drain(TALLY, serve, JOBS)
        await asyncio.sleep(1)
        latencies = await pick_ups_ms(TALLY, one, PICK_UPS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await pool.close()
    return rates | {"drain": drained} | latencies


if __name__ == "__main__":
    from tests.bench.peers.oban import TALLY, WORKER, measure  # the worker is found by its module's name

    tell(measure)
