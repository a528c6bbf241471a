"""The engine without HTTP: ledger, border and store, put together as run.py does it, and the loads that are put on it."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

import trio

import run as composition
from actors.ledger import Ledger
from switchboard.commands import Claimed, ClaimNext, Complete, CreateTodo, Outcome
from switchboard.database.border import Bounds, Database
from switchboard.store.overdue_turns import OverdueTurns
from switchboard.todo import Todo
from tests.bench.ground import ENDPOINT
from tests.bench.words import PAYLOAD, QUEUE

POOL_SIZE: Final = 8
LEASE_SECONDS: Final = 300


@asynccontextmanager
async def engine(database: str) -> AsyncIterator[Ledger]:
    """A ledger on this database, as a house has it."""
    gc.enable()  # run.py switches it off while it is imported
    store = Database(database, pool_size=POOL_SIZE, bounds=Bounds.within(10))
    ledger = Ledger(run_batch=composition._batches(store, OverdueTurns()), ring=lambda *_rings: None)
    composition._spare_the_collector()
    async with trio.open_nursery() as nursery:
        await nursery.start(ledger.run)
        yield ledger
        nursery.cancel_scope.cancel()
    store.close()


def creates(batch: int) -> list[CreateTodo]:
    """Todos with idempotency keys that nobody used."""
    stem = uuid4().hex
    return [
        CreateTodo(endpoint_id=ENDPOINT, queue=QUEUE, max_attempts=5, payload=PAYLOAD, idempotency_key=f"{stem}-{number}")
        for number in range(batch)
    ]


def claim_next(batch: int, lease_seconds: int = LEASE_SECONDS) -> ClaimNext:
    """A claim of up to so many."""
    return ClaimNext(endpoint_id=ENDPOINT, owner="bench", lease_seconds=lease_seconds, queues=(QUEUE,), limit=batch)


def completes(todos: Sequence[Todo]) -> list[Complete]:
    """Their completions, by lease token."""
    return [Complete(endpoint_id=todo.endpoint_id, todo_id=todo.id, lease_token=todo.lease_token) for todo in todos]


def claimed(outcomes: Sequence[Outcome]) -> tuple[Todo, ...]:
    """The todos of one claim's outcome."""
    (outcome,) = outcomes
    assert isinstance(outcome, Claimed), outcome
    return outcome.todos


def drain_per_second(database: str, *, tasks: int, batch: int, todos: int) -> float:
    """Todos a second that so many tasks claim and complete together, in batches."""

    async def work(ledger: Ledger) -> int:
        held = claimed(await ledger.submit([claim_next(batch)]))
        if held:
            await ledger.submit(completes(held))
        return len(held)

    return trio.run(_rate, database, work, tasks, todos)


def enqueue_per_second(database: str, *, tasks: int, batch: int, todos: int) -> float:
    """Todos a second that so many tasks create together, in batches, with idempotency keys."""

    async def work(ledger: Ledger) -> int:
        return len(await ledger.submit(creates(batch)))

    return trio.run(_rate, database, work, tasks, todos)


async def _rate(database: str, work: Callable[[Ledger], Awaitable[int]], tasks: int, todos: int) -> float:
    done = 0

    async def one(ledger: Ledger) -> None:
        nonlocal done
        while done < todos:
            made = await work(ledger)
            if not made:
                return
            done += made

    async with engine(database) as ledger:
        await work(ledger)  # whatever opens connections and prepares statements
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(one, ledger)
        return done / (trio.current_time() - began)
