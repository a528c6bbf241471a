"""P7: throughput while somebody else's `repeatable read` transaction stays open, so that nothing that dies can be cleaned up.

Work is scarce: each task creates a todo and asks for two, so that every claim's scan comes up short and looks at all there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import psycopg
import trio

from actors.ledger import Ledger
from tests.bench import engine
from tests.bench.figures import Curve, Figure, Report, ratios, turned
from tests.bench.ground import Ground

TASKS: Final = 64
SLICES: Final = 10
GOAL: Final = 0.6
SMALL_TODOS: Final = 10_000
LARGE_TODOS: Final = 200_000


def held_snapshot(ground: Ground, rounds: int, todos: int) -> Report:
    """P7, with leases of 300 s and of 1 s."""
    figures, curve_lines = [], {}
    for lease_seconds in (300, 1):
        clean: list[list[float]] = []
        held: list[list[float]] = []
        for turn in range(rounds):
            for side in turned(("clean", "held"), turn):
                with ground.fresh() as database, open_transaction(database) if side == "held" else nullcontext():
                    (held if side == "held" else clean).append(trio.run(slices, database, todos, lease_seconds))
        rates = {side: tuple(todos / sum(taken) for taken in runs) for side, runs in (("held", held), ("clean", clean))}
        figures.append(
            Figure(
                number="P7",
                what=f"throughput under an open transaction through {todos:,} todos, leases of {lease_seconds} s, of clean",
                values=ratios(rates["held"], rates["clean"]),
                goal=GOAL,
                beside={f"{side}, todos per second": values for side, values in rates.items()}
                | {
                    "the last tenth, of clean's": tuple(
                        (before[-1] / after[-1]) for before, after in zip(clean, held, strict=True)
                    )
                },
            )
        )
        for side, runs in (("clean", clean), ("held", held)):
            curve_lines[f"{side}, leases of {lease_seconds} s"] = curve_points(runs, todos)
    curve = Curve(
        name="held_snapshot",
        title="Throughput against minutes with an open transaction",
        x="minutes since it was opened",
        y="todos a second",
        lines=curve_lines,
    )
    return Report(figures=tuple(figures), curves=(curve,))


def curve_points(runs: list[list[float]], todos: int) -> tuple[tuple[float, float], ...]:
    """The middle run's rate in each slice, at the minute at which it ended."""
    taken = sorted(runs, key=sum)[len(runs) // 2]
    return tuple((sum(taken[: place + 1]) / 60, todos / SLICES / seconds) for place, seconds in enumerate(taken))


@contextmanager
def open_transaction(database: str) -> Iterator[None]:
    """A snapshot of the database as it is now, kept."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("select count(*) from todos")
        yield
        connection.execute("rollback")


async def slices(database: str, todos: int, lease_seconds: int) -> list[float]:
    """Seconds that each tenth of so many todos took, from create to completion."""
    done = 0
    ended: list[float] = []

    async def work(ledger: Ledger) -> None:
        nonlocal done
        while done < todos:
            await ledger.submit(engine.creates(1))
            held = engine.claimed(await ledger.submit([engine.claim_next(2, lease_seconds)]))
            if held:
                await ledger.submit(engine.completes(held))
            done += len(held)
            while len(ended) < SLICES and done >= (len(ended) + 1) * todos / SLICES:
                ended.append(trio.current_time())

    async with engine.engine(database) as ledger:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(TASKS):
                nursery.start_soon(work, ledger)
    return [after - before for before, after in zip([began, *ended], ended, strict=False)]
