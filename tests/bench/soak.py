"""Minutes of full load on one house: does anything grow, does anything slow down?"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import psycopg

from tests.bench import servers
from tests.bench.doorbell import rss_mb
from tests.bench.figures import Curve, Figure, Report
from tests.bench.ground import Ground

SLICES: Final = 20
SLOWER_MIN: Final = 0.8


def soak(ground: Ground, minutes: float) -> Report:
    """Create, claim and complete from 64 connections in slices; the last quarter beside the first."""
    rates, p99s, memory, megabytes = [], [], [], []
    with ground.fresh() as database:
        house = ground.house(database)
        try:
            port = int(urlsplit(house.url).port or 0)
            for _ in range(SLICES):
                served = servers.load_on(port, "lifecycle", connections=64, seconds=60 * minutes / SLICES)
                rates.append(served.requests_per_second)
                p99s.append(served.p99_ms)
                memory.append(float(rss_mb(house)))
                megabytes.append(size_mb(database))
        finally:
            house.close()
    quarter = SLICES // 4
    figure = Figure(
        number="soak",
        what=f"{minutes:g} minutes of full load: requests per second of the last quarter, of the first",
        values=tuple(last / first for last, first in zip(rates[-quarter:], rates[:quarter], strict=True)),
        goal=SLOWER_MIN,
        beside={
            "requests per second": tuple(rates),
            "p99 ms": tuple(p99s),
            "resident memory, MB": tuple(memory),
            "database, MB": tuple(megabytes),
        },
    )
    ended = [minutes * (place + 1) / SLICES for place in range(SLICES)]
    curve = Curve(
        name="soak",
        title="Throughput over minutes of full load",
        x="minutes",
        y="requests a second",
        lines={"house": tuple(zip(ended, rates, strict=True))},
    )
    return Report(figures=(figure,), curves=(curve,))


def size_mb(database: str) -> float:
    """The size of the database."""
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute("select pg_database_size(current_database())").fetchone()
    assert row is not None
    return float(row[0]) / 1e6
