"""How throughput goes with the batch and with the clients; the other curves come with the figures that they belong to."""

from __future__ import annotations

from typing import Final

from tests.bench import batches, servers
from tests.bench.figures import Curve, Report
from tests.bench.ground import Ground

BATCHES: Final = (1, 3, 10, 30, 100, 300)
CLIENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TODOS_PER_BATCHED: Final = 300
TODOS_MAX: Final = 20_000
SECONDS: Final = 2.0


def curves(ground: Ground, rounds: int) -> Report:
    """Throughput against batch (engine) and against clients (HTTP, one todo a request). One round: they show a shape."""
    by_batch = []
    for batch in BATCHES:
        todos = min(TODOS_MAX, 2_000 + TODOS_PER_BATCHED * batch)
        by_batch.append((float(batch), batches.drained(ground, todos, batches.CLIENTS, batch)))
    by_clients = []
    with servers.house(ground) as port:
        for clients in CLIENTS:
            served = servers.load_on(port, "lifecycle", connections=clients, seconds=SECONDS)
            by_clients.append((float(clients), served.requests_per_second))
    return Report(
        curves=(
            Curve(
                name="batch",
                title="Throughput against the batch",
                x=f"todos claimed and completed at a time, by {batches.CLIENTS} tasks without HTTP",
                y="todos a second",
                lines={"engine": tuple(by_batch)},
                x_logarithmic=True,
            ),
            Curve(
                name="clients",
                title="Throughput against clients",
                x="connections over HTTP, one todo a request",
                y="requests a second",
                lines={"house": tuple(by_clients)},
                x_logarithmic=True,
            ),
        )
    )
