"""P6: what a claim takes when a million todos have ended and a hundred thousand wait, beside one in an empty history."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import attrs
import psycopg
import trio

from switchboard.database.border import Bounds, session_conninfo
from switchboard.database.queries import load
from tests.bench import engine
from tests.bench.figures import Curve, Figure, Report, alternate, ratios
from tests.bench.ground import ENDPOINT, Ground
from tests.bench.words import QUEUE

CLAIMS: Final = 200
FEW_PENDING: Final = 5_000
BUFFERS_MAX: Final = 20


@attrs.frozen
class Size:
    """How many have ended, and how many wait."""

    done: int
    pending: int


SMALL: Final = (Size(10_000, 2_000), Size(50_000, 5_000))
LARGE: Final = (Size(10_000, 2_000), Size(100_000, 10_000), Size(1_000_000, 100_000))


def history(ground: Ground, rounds: int, sizes: Sequence[Size]) -> Report:
    """P6, for the last of these sizes; the others are points of the curve."""
    empty = Size(0, FEW_PENDING)
    databases = {size: ground.database(done=size.done, pending=size.pending) for size in (empty, *sizes)}
    try:
        found = alternate(rounds, {name(size): partial(claim_ms, database) for size, database in databases.items()})
        buffers = max(scan_buffers(databases[sizes[-1]]) for _ in range(rounds))
    finally:
        for database in databases.values():
            ground.drop(database)
    largest = sizes[-1]
    figures = (
        Figure(
            number="P6",
            what=f"claim latency with {largest.done:,} done and {largest.pending:,} pending, of an empty history",
            values=ratios(found[name(largest)], found[name(empty)]),
            goal=1.15,
            at_most=True,
            beside={f"{which}, p50 ms": values for which, values in found.items()},
        ),
        Figure(
            number="P6",
            what="buffers that the claim's scan reads there",
            values=(float(buffers),),
            goal=BUFFERS_MAX,
            at_most=True,
            unit="buffers",
        ),
    )
    points: tuple[tuple[float, float], ...] = ((1_000.0, statistics.median(found[name(empty)])),)
    points += tuple((float(size.done), statistics.median(found[name(size)])) for size in sizes)
    curve = Curve(
        name="history",
        title="A claim's latency against the history behind it",
        x="todos that have ended (the first point: none)",
        y="p50 of a claim, ms",
        lines={"single claim": points},
        x_logarithmic=True,
    )
    return Report(figures=figures, curves=(curve,))


def name(size: Size) -> str:
    """What a size is called."""
    return f"{size.done:,} done, {size.pending:,} pending"


def claim_ms(database: str) -> float:
    """The median of single claims, one after the other, through the ledger."""

    async def measure() -> float:
        took = []
        async with engine.engine(database) as ledger:
            for _ in range(CLAIMS):
                began = trio.current_time()
                assert engine.claimed(await ledger.submit([engine.claim_next(1)]))
                took.append(trio.current_time() - began)
        return 1000 * statistics.median(took)

    return trio.run(measure)


def scan_buffers(database: str) -> int:
    """The buffers that the scan for one pending todo reads."""
    values = {"endpoint_id": ENDPOINT, "queue": QUEUE, "owner": None, "limit": 1}
    with psycopg.connect(session_conninfo(database, Bounds.within(10)), autocommit=True) as connection:
        connection.execute("begin")
        statement = b"explain (analyze, buffers, format json) " + load("claims/lock_pending_in_queue")
        row = connection.execute(statement, values).fetchone()
        connection.execute("rollback")
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
