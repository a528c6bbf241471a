"""C53: somebody's transaction stays open for hours, and nothing that is dead can be cleaned away. And ours never do that."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.house import facts
from tests.house.agent_process import Caller
from tests.houses import Opener

MEASURED_CLAIMS = 60
BATCH = 500
SLOWER_MAX = 5.0
FLOOR_SECONDS = 0.02
"""Below this a claim is fast, whatever the ratio says: a busy machine's own noise."""
IDLE_SECONDS_MAX = 1.0


@contextmanager
def idle_watched(conninfo: str) -> Iterator[list[str]]:
    """Looks, again and again, for sessions of ours that sit idle inside a transaction; lists what was seen."""
    seen: list[str] = []
    over = threading.Event()
    statement = (
        "select application_name || ': ' || query from pg_stat_activity"
        " where datname = current_database() and application_name like 'switchboard%%'"
        "   and state like 'idle in transaction%%' and clock_timestamp() - state_change > make_interval(secs => %s)"
    )

    def look() -> None:
        with psycopg.connect(conninfo, autocommit=True, application_name=facts.NAME) as connection:
            while not over.wait(0.1):
                seen.extend(query for (query,) in connection.execute(statement, [IDLE_SECONDS_MAX]))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


def claim_seconds(caller: Caller) -> float:
    """What nine of ten claims of one todo do not exceed."""
    times = []
    for _ in range(MEASURED_CLAIMS):
        assert caller.post("/v1/todos", {"queue": "measured"})[0] == 201
        began = time.monotonic()
        status, reply = caller.post("/v1/claims", {"queue": "measured"})
        times.append(time.monotonic() - began)
        assert status == 200
        (todo,) = reply["todos"]
        assert caller.post(f"/v1/todos/{todo['id']}/complete", {"lease_token": todo["lease_token"]})[0] == 200
    return statistics.quantiles(times, n=10)[-1]


def churn(caller: Caller, todos: int) -> None:
    """Creates and completes so many, in the very queue that is measured."""
    for _ in range(0, todos, BATCH):
        assert caller.post("/v1/todos/batch", {"todos": [{"queue": "measured"}] * BATCH})[0] == 200
        _, reply = caller.post("/v1/claims", {"queue": "measured", "max": BATCH})
        items = [{"id": todo["id"], "lease_token": todo["lease_token"]} for todo in reply["todos"]]
        assert len(items) == BATCH
        assert caller.post("/v1/todos/complete", {"items": items})[0] == 200


@pytest.mark.parametrize("todos", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_c53_claims_stay_fast_while_a_transaction_is_held_open(
    open_house: Opener, todos: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """C53: a `repeatable read` transaction is held open elsewhere while todos are made and done, so that every dead row
    stays: the latency of a claim stays bounded, and no session of ours is idle in a transaction for more than a second.
    """
    house = open_house()
    agent, database = house.vend(), str(house.database)
    caller = Caller(house.url, agent.credential)
    with idle_watched(database) as idle, psycopg.connect(database, application_name=facts.NAME) as holder:
        claim_seconds(caller)  # connections, plans
        before = claim_seconds(caller)
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from todos")
        churn(caller, todos)
        after = claim_seconds(caller)
        assert holder.execute("select count(*) from todos where state = 'pending'").fetchone() == (0,)  # it was open all along
        holder.rollback()
    caller.close()
    with capsys.disabled():
        print(f"\n  9 of 10 claims within {before * 1000:.1f} ms before {todos} todos, {after * 1000:.1f} ms after")
    assert idle == []
    assert after < max(before * SLOWER_MAX, FLOOR_SECONDS)
