"""absurd-sdk: the asynchronous client, a connection for each of eight groups of callers, a worker with a concurrency of 64."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from absurd_sdk import AsyncAbsurd

from tests.bench.peers.measuring import Tally, drain, enqueue, pick_ups_ms, tell

SECONDS = 2.0
JOBS = 2_000
CONNECTIONS = 8
CONCURRENCY = 64
PICK_UPS = 30


async def measure(given: dict[str, Any]) -> dict[str, Any]:
    """All lines; it has no bulk."""
    install_schema(given)
    tally = Tally()
    apps = [AsyncAbsurd(given["conninfo"], queue_name="work") for _ in range(CONNECTIONS + 1)]
    worker = apps.pop()
    await worker.create_queue()
    turns = itertools.cycle(apps)

    async def one() -> None:
        await next(turns).spawn("work", {"n": 1}, queue="work")

    async def work(params: Any, context: Any) -> None:
        tally.done()

    rates = await enqueue(one, None, SECONDS)
    await worker.drop_queue("work")
    await worker.create_queue()
    for _ in range(JOBS // 64):
        await asyncio.gather(*(one() for _ in range(64)))
    worker.register_task("work")(work)
    drained, running = await drain(tally, lambda: worker.start_worker(concurrency=CONCURRENCY), JOBS // 64 * 64)
    await asyncio.sleep(1)
    latencies = await pick_ups_ms(tally, one, PICK_UPS)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for app in (*apps, worker):
        await app.close()
    return rates | {"drain": drained} | latencies


def install_schema(given: dict[str, Any]) -> None:
    """By its own tool, which wants a psql: the one beside the embedded server."""
    environ = os.environ | {
        "PATH": f"{given['programs']}:{os.environ['PATH']}",
        "PGHOST": given["host"],
        "PGUSER": given["user"],
        "PGPASSWORD": given["password"],
        "PGDATABASE": given["dbname"],
    }
    tool = str(Path(sys.executable).with_name("python"))
    words = [tool, "-c", "import absurdctl; absurdctl.main()", "init"]
    subprocess.run(words, env=environ, check=True, capture_output=True, timeout=60)


if __name__ == "__main__":
    tell(measure)
