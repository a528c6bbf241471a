"""P1, P2, P5, the engine without HTTP, and P3, batches over HTTP, against pgbench running our own SQL in the same round."""

from __future__ import annotations

from typing import Final

from tests.bench import engine, pgbench, servers
from tests.bench.figures import Figure, Report, alternate, ratios
from tests.bench.ground import Ground

CLIENTS: Final = 4
BATCH: Final = 100
TODOS: Final = 40_000
SINGLE_TASKS: Final = 64
SINGLE_TODOS: Final = 10_000
SPARE: Final = 2_000
"""Todos that stay behind, so that no claim comes up short because others hold what is left."""
HTTP_SECONDS: Final = 4


def engine_drain(ground: Ground, rounds: int) -> Report:
    """P1."""
    found = alternate(
        rounds,
        {
            "engine, todos per second": lambda: drained(ground, TODOS, CLIENTS, BATCH),
            "limit, todos per second": lambda: drain_limit(ground, TODOS, CLIENTS, BATCH),
        },
    )
    return one("P1", f"engine: claim {BATCH} + complete {BATCH}, {CLIENTS} clients, of the limit", found, 0.70)


def engine_singles(ground: Ground, rounds: int) -> Report:
    """P2."""
    found = alternate(
        rounds,
        {
            "engine, todos per second": lambda: drained(ground, SINGLE_TODOS, SINGLE_TASKS, 1),
            "limit, todos per second": lambda: max(
                drain_limit(ground, SINGLE_TODOS // 2, clients, 1) for clients in (8, SINGLE_TASKS)
            ),
        },
    )
    what = f"engine: single claim + complete, {SINGLE_TASKS} tasks through the ledger, of single statements"
    return one("P2", what, found, 2.0, note="the limit is the better of 8 and 64 pgbench clients")


def enqueue(ground: Ground, rounds: int) -> Report:
    """P5."""
    with servers.house(ground) as port:
        found = alternate(
            rounds,
            {
                "engine, todos per second": lambda: enqueued(ground, TODOS, CLIENTS, BATCH),
                "HTTP, todos per second": lambda: (
                    servers.load_on(port, "creates", connections=CLIENTS, batch=BATCH, seconds=HTTP_SECONDS).todos_per_second
                ),
                "limit, todos per second": lambda: enqueue_limit(ground, TODOS, CLIENTS, BATCH),
            },
        )
    limit = found["limit, todos per second"]
    figures = [
        Figure(
            number="P5",
            what=f"enqueue batch {BATCH} with dedup: {way}, of the limit",
            values=ratios(found[f"{way}, todos per second"], limit),
            goal=goal,
            beside={name: found[name] for name in (f"{way}, todos per second", "limit, todos per second")},
        )
        for way, goal in (("engine", 0.7), ("HTTP", 0.35))
    ]
    return Report(figures=tuple(figures))


def http_batches(ground: Ground, rounds: int) -> Report:
    """P3."""
    script = pgbench.insert(BATCH) + pgbench.claim_and_complete(BATCH)

    def limit() -> float:
        with ground.fresh(pending=SPARE) as database:
            return BATCH * pgbench.transactions_per_second(database, script, clients=CLIENTS, seconds=HTTP_SECONDS)

    with servers.house(ground) as port:
        found = alternate(
            rounds,
            {
                "HTTP, todos per second": lambda: (
                    servers.load_on(port, "batches", connections=CLIENTS, batch=BATCH, seconds=HTTP_SECONDS).todos_per_second
                ),
                "limit, todos per second": limit,
            },
        )
    return one("P3", f"HTTP: batch {BATCH}, create + claim + complete, {CLIENTS} connections, of the limit", found, 0.4)


def one(number: str, what: str, found: dict[str, tuple[float, ...]], goal: float, note: str = "") -> Report:
    """A figure of two sides: the first, of the second."""
    first, second = found.values()
    figure = Figure(number=number, what=what, values=ratios(first, second), goal=goal, beside=found, note=note)
    return Report(figures=(figure,))


def drained(ground: Ground, todos: int, tasks: int, batch: int) -> float:
    """Todos a second through the ledger."""
    with ground.fresh(pending=todos + SPARE) as database:
        return engine.drain_per_second(database, tasks=tasks, batch=batch, todos=todos)


def drain_limit(ground: Ground, todos: int, clients: int, batch: int) -> float:
    """Todos a second by pgbench."""
    each = max(1, todos // (batch * clients))
    with ground.fresh(pending=todos + SPARE) as database:
        script = pgbench.claim_and_complete(batch)
        return batch * pgbench.transactions_per_second(database, script, clients=clients, transactions_each=each)


def enqueued(ground: Ground, todos: int, tasks: int, batch: int) -> float:
    """Todos a second through the ledger."""
    with ground.fresh() as database:
        return engine.enqueue_per_second(database, tasks=tasks, batch=batch, todos=todos)


def enqueue_limit(ground: Ground, todos: int, clients: int, batch: int) -> float:
    """Todos a second by pgbench."""
    each = max(1, todos // (batch * clients))
    with ground.fresh() as database:
        script = pgbench.insert(batch)
        return batch * pgbench.transactions_per_second(database, script, clients=clients, transactions_each=each)
