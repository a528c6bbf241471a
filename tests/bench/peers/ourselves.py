"""The house's engine, asked what every peer is asked: in process, through the ledger."""

from __future__ import annotations

import statistics
from typing import Any, Final

import trio

from switchboard import VERSION
from tests.bench import batches, engine
from tests.bench.ground import Ground
from tests.bench.peers.measuring import BATCH, CALLERS

NAME: Final = "switchboard, in process"
ABOUT: Final = {
    "version": VERSION,
    "keeps": "finished todos, every attempt, dedup keys, leases, tenants",
    "drops": "nothing of these",
}
SINGLES: Final = 1_000
TODOS: Final = 20_000
PICK_UPS: Final = 100


def measure(ground: Ground) -> dict[str, Any]:
    """One row."""
    latencies = pick_ups_ms(ground)
    centiles = statistics.quantiles(latencies, n=100)
    return {
        "enqueue_1": batches.enqueued(ground, SINGLES, 1, 1),
        "enqueue_64": batches.enqueued(ground, 8 * SINGLES, CALLERS, 1),
        "bulk_100": batches.enqueued(ground, TODOS, 1, BATCH),
        "drain": batches.drained(ground, TODOS, batches.CLIENTS, BATCH),
        "pick_up_p50_ms": centiles[49],
        "pick_up_p99_ms": centiles[98],
    }


def pick_ups_ms(ground: Ground) -> list[float]:
    """From the call of a create to its claim, asked for as soon as the ring says so."""

    async def run() -> list[float]:
        took = []
        with ground.fresh() as database:
            async with engine.engine(database) as ledger:
                for _ in range(PICK_UPS):
                    await trio.sleep(0.02)
                    began = trio.current_time()
                    await ledger.submit(engine.creates(1))
                    assert engine.claimed(await ledger.submit([engine.claim_next(1)]))
                    took.append(1000 * (trio.current_time() - began))
        return took

    return trio.run(run)
