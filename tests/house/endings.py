"""How a house ends, and what it is doing at that moment."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg

from tests.house import facts
from tests.houses import House, wait_until

SLACK_SECONDS = 1.0
"""What a busy machine adds to a bound, and an interpreter's own end."""


def end(house: House, number: int = signal.SIGTERM, *, within_seconds: float) -> float:
    """Sends the signal; asserts exit code 0 within the bound; returns how long it took, in seconds."""
    began = time.monotonic()
    house.signal(number)
    assert house.process.wait(within_seconds + 10) == 0, house.log()
    took = time.monotonic() - began
    assert took <= within_seconds + SLACK_SECONDS, f"{took:.2f} s: {house.log()}"
    return took


@contextmanager
def locked(conninfo: str, table: str = "todos") -> Iterator[psycopg.Connection[Any]]:
    """A table that nobody else may touch until the block ends, or the connection is rolled back."""
    with psycopg.connect(conninfo, application_name=facts.NAME) as holder:
        holder.execute(f"lock table {table} in access exclusive mode".encode())
        try:
            yield holder
        finally:
            holder.rollback()


def wait_for_session(conninfo: str, condition: str, *, seconds: float = 10.0) -> None:
    """Waits until one of the house's sessions is as the condition on `pg_stat_activity` says."""
    statement = (
        "select exists (select 1 from pg_stat_activity where datname = current_database()"
        f" and application_name like 'switchboard%' and {condition})"
    )
    wait_until(lambda: bool(facts.one(conninfo, statement)), seconds=seconds, what=f"a session that is {condition}")


def refuses_connections(url: str) -> bool:
    """Whether nobody listens there any more."""
    at = urlsplit(url)
    try:
        socket.create_connection((at.hostname or "", at.port or 0), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False
