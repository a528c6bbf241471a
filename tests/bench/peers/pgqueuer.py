"""pgqueuer: asyncpg, uvloop, a worker with the batch size of 100 that its own benchmark uses."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries

from tests.bench.peers.measuring import BATCH, Tally, drain, enqueue, pick_ups_ms, tell

SECONDS = 2.0
JOBS = 20_000
POOL_SIZE = 8
PICK_UPS = 100
PAYLOAD = b'{"order": 1, "items": [{"sku": "A-1", "count": 3}], "note": "a hundred bytes or so of work to be done"}'


async def measure(given: dict[str, Any]) -> dict[str, Any]:
    """All lines."""
    tally = Tally()
    place = {"host": given["host"], "user": given["user"], "password": given["password"], "database": given["dbname"]}
    async with asyncpg.create_pool(**place, min_size=POOL_SIZE, max_size=POOL_SIZE) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()

        async def one() -> None:
            await queries.enqueue("work", PAYLOAD)

        async def many(batch: int) -> None:
            await queries.enqueue(["work"] * batch, [PAYLOAD] * batch, [0] * batch)

        rates = await enqueue(one, many, SECONDS)
        await queries.clear_queue()
        for _ in range(JOBS // BATCH):
            await many(BATCH)
        connection = await asyncpg.connect(**place)
        worker = PgQueuer(AsyncpgDriver(connection))

        async def work(job: Any) -> None:
            tally.done()

        worker.entrypoint("work")(work)
        drained, running = await drain(tally, lambda: worker.run(batch_size=BATCH), JOBS)
        await asyncio.sleep(1)
        latencies = await pick_ups_ms(tally, one, PICK_UPS)
        worker.shutdown.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        connection.terminate()
    return rates | {"drain": drained} | latencies


if __name__ == "__main__":
    uvloop.install()
    tell(measure)
