"""The kill test: whatever is killed, each stream entry and each distinct list body becomes exactly one todo.

A producer adds numbered entries in both modes that acknowledge while the house is killed at random moments, Postgres and
Redis are restarted, and adapters are switched off and on. `--long` is the form of the acceptance: 20,000 entries in each
mode, 20 kills, two restarts of each server.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest
import redis

from switchboard.database.embedded import start
from switchboard.state_dir import prepare
from tests.houses import House, Opener, wait_until
from tests.redis.reading import ENDPOINT, count, pending, plain_list, stream
from tests.redis.servers import RedisServer

SETTLE_SECONDS_MAX = 120.0


@attrs.frozen
class Size:
    """How much of everything."""

    entries: int
    kills: int
    restarts: int
    seconds_between: float


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(entries=2_000, kills=4, restarts=1, seconds_between=1.5), id="short"),
        pytest.param(Size(entries=20_000, kills=20, restarts=2, seconds_between=3.0), id="full", marks=pytest.mark.long),
    ],
)
def test_kill(open_house: Opener, open_directory: Path, redis_server: RedisServer, size: Size) -> None:
    """R3, R31, C20, C26, C29, C30, C41 at once: exactly one todo for each entry and each body; nothing left behind."""
    postgres = Postgres(open_directory / f"kill-{size.entries}")
    try:
        house = open_house(
            adapters=[stream(redis_server), plain_list(redis_server)],
            database=postgres.start(),
            settings={"server": {"shutdown_grace_seconds": 5}},
        )
        house.vend(ENDPOINT)
        producer = Producer(redis_server, size.entries, seconds=size.kills * size.seconds_between)
        producer.start()
        house = rage(open_house, house, redis_server, postgres, size)
        producer.join()
        assert producer.failure is None, producer.failure
        enable_all(house)
        client = redis_server.client
        for _ in range(int(SETTLE_SECONDS_MAX)):
            if count(house) >= 2 * size.entries and client.llen("jobs") == 0 and pending(redis_server) == 0:
                break
            time.sleep(1)  # two queues drain in another process: nothing here to wait for
        wait_until(lambda: client.llen("jobs:switchboard-1") == 0, seconds=30, what="an empty processing list")
        assert (client.llen("jobs"), pending(redis_server), client.xinfo_groups("orders")[0]["lag"]) == (0, 0, 0)
        with psycopg.connect(postgres.conninfo) as connection:
            for prefix in ("redis:orders:", "redis:jobs:"):
                row = connection.execute(
                    "select count(*), count(distinct idempotency_key), count(distinct payload::text) from todos"
                    " where starts_with(idempotency_key, %s)",
                    (prefix,),
                ).fetchone()
                assert row == (size.entries, size.entries, size.entries), prefix
            (quarantined,) = connection.execute("select count(*) from events where disposition = 'quarantined'").fetchone() or (
                None,
            )
        assert quarantined == 0
        (consumer,) = client.xinfo_consumers("orders", "switchboard")
        assert consumer["name"] == b"switchboard-1"
        assert house.stop() == 0
    finally:
        postgres.stop()


def rage(open_house: Opener, house: House, server: RedisServer, postgres: Postgres, size: Size) -> House:
    """Kills, restarts and toggles at random moments; returns the house that lives at the end."""
    dice = random.Random(size.entries)
    after = {round((turn + 1) * size.kills / (size.restarts + 1)) for turn in range(size.restarts)}
    for turn in range(size.kills):
        time.sleep(dice.uniform(0.2, 2 * size.seconds_between - 0.2))  # a random moment is what this is about
        house.kill()
        house = open_house.again(house)
        toggle(house, dice)
        if turn in after:
            server.stop(dice.choice([signal.SIGKILL, signal.SIGTERM]))
            server.start()
            time.sleep(dice.uniform(0.1, 1.0))
            postgres.stop()
            time.sleep(dice.uniform(0.1, 2.0))
            postgres.start()
    return house


def toggle(house: House, dice: random.Random) -> None:
    with house.operator() as http:
        for name in ("orders", "jobs"):
            http.post(f"/operator/v1/adapters/{name}/{dice.choice(['enable', 'disable', 'enable'])}")


def enable_all(house: House) -> None:
    with house.operator() as http:
        for name in ("orders", "jobs"):
            assert http.post(f"/operator/v1/adapters/{name}/enable").status_code == 200


class Postgres:
    """A PostgreSQL of this test's own, to be stopped and started."""

    def __init__(self, directory: Path) -> None:
        self._directory = prepare(directory)
        self._server: Any = None
        self.conninfo = ""

    def start(self) -> str:
        self._server = start(self._directory)
        self.conninfo = self._server.conninfo
        return self.conninfo

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(10)
            self._server = None


class Producer(threading.Thread):
    """Adds numbered entries to the stream and bodies to the list, each once, whatever happens to the server.

    An entry is added under an id of its own making, so that one whose answer was lost is not added twice; a body whose
    answer was lost is pushed again: a body that stands twice is one distinct body.
    """

    def __init__(self, server: RedisServer, entries: int, seconds: float) -> None:
        super().__init__()
        self._server = server
        self._entries = entries
        self._pause_seconds = seconds / (entries / BURST)
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for first in range(1, self._entries + 1, BURST):
                self._burst(range(first, first + BURST))
                time.sleep(self._pause_seconds)
        except Exception as exc:  # noqa: BLE001 - told by the test, which is in another thread
            self.failure = exc

    def _burst(self, numbers: range) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                with redis.Redis(host="127.0.0.1", port=self._server.port, protocol=2) as client:
                    last = client.xrevrange("orders", count=1)
                    done = int(last[0][0].partition(b"-")[0]) if last else 0
                    pipe = client.pipeline(transaction=False)
                    for number in numbers:
                        if number > done:
                            pipe.xadd("orders", {"payload": f'"entry {number}"'}, id=f"{number}-1")
                        pipe.lpush("jobs", f'"body {number}"')
                    pipe.execute()
                    return
            except redis.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


BURST = 50
