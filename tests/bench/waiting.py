"""P8, P9 and P10 as figures: what waits, who is attached, and a stream of Redis; by the benches that also run on their own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import trio

from tests.bench import attached, doorbell, redis_stream, servers
from tests.bench.figures import Figure, Report, ratios
from tests.bench.ground import CREDENTIAL, Ground
from tests.bench.load import Load, Served, run_load
from tests.bench.redis_stream import fresh_database
from tests.houses import Agent, House, Opener
from tests.redis.servers import RedisServer, free_port

PICK_UPS: Final = 200
BUSY_SECONDS: Final = 6.0
ATTACHED_ROUNDS_MIN: Final = 5
ENTRIES: Final = 20_000
LIMIT_SECONDS: Final = 2.5


def pick_up(ground: Ground, rounds: int) -> Report:
    """P8: on an idle house, and at half of the load that it can take."""
    idle: dict[str, list[tuple[float, float]]] = {"claim": [], "stream": []}
    busy: dict[str, list[tuple[float, float]]] = {"claim": [], "stream": []}
    with ground.fresh() as database:
        house = ground.house(database)
        try:
            agent = house.vend()
            port = int(house.url.rsplit(":", 1)[1])
            full = servers.load_on(port, "lifecycle", connections=64).requests_per_second
            for _ in range(rounds):
                for way in idle:
                    idle[way].append(doorbell.centiles_ms(trio.run(doorbell.pick_up, house, agent, PICK_UPS, way)))
                    busy[way].append(trio.run(while_busy, house, agent, way, port, full / 2))
        finally:
            house.close()
    names = {"claim": "waiting claim", "stream": "event stream"}
    figures = []
    for way, name in names.items():
        figures += [
            milliseconds(f"create's answer to a {name}, idle house, p50", [each[0] for each in idle[way]], 2),
            milliseconds(f"create's answer to a {name}, idle house, p99", [each[1] for each in idle[way]], 10),
            milliseconds(f"create's answer to a {name}, half load, p99", [each[1] for each in busy[way]], 25),
        ]
    return Report(figures=tuple(figures))


def milliseconds(what: str, values: Sequence[float], goal: float) -> Figure:
    """A latency. Below zero, the waiter heard before the creator had its answer."""
    return Figure(number="P8", what=what, values=tuple(values), goal=goal, at_most=True, unit="ms")


async def while_busy(house: House, agent: Agent, way: str, port: int, per_second: float) -> tuple[float, float]:
    """The pick-up while 64 connections create, claim and complete so much."""
    load = Load(
        host="127.0.0.1",
        port=port,
        credential=CREDENTIAL,
        work="lifecycle",
        seconds=BUSY_SECONDS,
        per_second=per_second,
    )

    async def keep_busy(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> Served:
        task_status.started()
        return await trio.to_thread.run_sync(run_load, load)

    async with trio.open_nursery() as nursery:
        await nursery.start(keep_busy)
        await trio.sleep(1.5)  # its process starts, its connections open
        took = await doorbell.pick_up(house, agent, PICK_UPS, way, BUSY_SECONDS - 2)
    return doorbell.centiles_ms(took)


def fifty_attached(ground: Ground, rounds: int) -> Report:
    """P9."""
    with ground.fresh() as database:
        house = ground.house(database)
        try:
            rates = trio.run(attached.measure, house, house.vend(), max(rounds, ATTACHED_ROUNDS_MIN))
        finally:
            house.close()
    figures = [
        Figure(
            number="P9",
            what=f"{attached.STREAMS} streams ({who}) and {attached.WAITERS} waiting claims: less enqueue throughput",
            values=tuple(100 * cost for cost in attached.costs_of(rates[who], rates["nobody"])),
            goal=100 * attached.COST_MAX,
            at_most=True,
            unit="%",
            beside={f"{side}, todos per second": tuple(rates[side]) for side in ("nobody", who)},
        )
        for who in ("quiet", "all ears")
    ]
    return Report(figures=tuple(figures))


def redis_to_todos(ground: Ground, rounds: int) -> Report:
    """P10."""
    with ExitStack() as stack:
        directory = ground.directory / "redis"
        directory.mkdir()
        redis = RedisServer(directory=directory, port=free_port(), extra=["--appendfsync", "everysec"])
        stack.callback(redis.close)
        redis.start()
        opener = Opener(directory, lambda: fresh_database(ground.superuser))
        stack.callback(opener.close)
        database = fresh_database(ground.superuser)
        limits, events, rates = redis_stream.measure_rounds(database, opener, redis, ENTRIES, rounds, LIMIT_SECONDS)
    figure = Figure(
        number="P10",
        what="Redis stream to event and todo, acked after the commit, of our own batch insert of both",
        values=ratios(rates, events),
        goal=redis_stream.RATIO_MIN,
        beside={
            "stream, entries per second": tuple(rates),
            "limit with events, per second": tuple(events),
            "limit of todos alone, per second": tuple(limits),
        },
    )
    return Report(figures=(figure,))
