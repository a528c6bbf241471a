"""P10: from a Redis stream to todos, acknowledged after the commit, against the batch enqueue limit of the same run.

    python -m tests.bench.redis_stream [ENTRIES]

The limit is our own batch insert with nothing around it: `events/ingest.sql`, or `todos/create.sql`, its parameters made
beforehand, in batches as large as the adapter's, a commit each, from one client and from two (processes of their own), the
better of the two. The same without the events shows what remembering costs. Trust the ratios of one run, never an absolute.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from switchboard.database.border import Bounds, Session, session_conninfo
from switchboard.database.embedded import start
from switchboard.database.migrations import migrate
from switchboard.database.queries import MIGRATIONS, load
from switchboard.pull.source import BATCH_MESSAGES_MAX
from switchboard.state_dir import prepare
from tests.houses import Opener, wait_until
from tests.redis.reading import ENDPOINT, count, stream, switch, until_state
from tests.redis.servers import RedisServer, free_port

ENTRIES = 40_000
LIMIT_SECONDS = 6.0
RATIO_MIN = 0.5
ROUNDS = 3


def main(entries: int) -> int:
    """Runs it; prints the figures; 0 when P10 is reached."""
    directory = Path(tempfile.mkdtemp(prefix="switchboard-bench-"))
    directory.chmod(0o755)
    server = start(prepare(directory / "postgres"))
    redis = RedisServer(directory=directory, port=free_port(), extra=["--appendfsync", "everysec"]).start()
    opener = Opener(directory, lambda: fresh_database(server.conninfo))
    try:
        database = fresh_database(server.conninfo)
        limits, events, rates = measure_rounds(database, opener, redis, entries, ROUNDS, LIMIT_SECONDS)
        print(f"limit of our own batch insert, event and todo   {max(events):>8,.0f} a second")
        print(f"limit of the todos alone                        {max(limits):>8,.0f} a second")
        print(f"stream -> event and todo -> ack                 {max(rates):>8,.0f} a second, of {entries:,} entries")
        ratio = max(rates) / max(events)
        print(f"P10: {ratio:.2f} of the limit (at least {RATIO_MIN}); {max(rates) / max(limits):.2f} of the todos alone")
        return 0 if ratio >= RATIO_MIN else 1
    finally:
        opener.close()
        redis.close()
        server.stop(10)
        shutil.rmtree(directory, ignore_errors=True)


def measure_rounds(
    database: str, opener: Opener, redis: RedisServer, entries: int, rounds: int, limit_seconds: float
) -> tuple[list[float], list[float], list[float]]:
    """A second, round by round: todos alone, events and todos, entries of a stream."""
    limits, events, rates = [], [], []
    for turn in range(rounds):  # in turns, so that all three see the same neighbours
        limits.append(max(limit(database, clients, limit_seconds, events=False) for clients in (1, 2)))
        events.append(max(limit(database, clients, limit_seconds, events=True) for clients in (1, 2)))
        rates.append(measure(opener, redis, entries, turn))
    return limits, events, rates


def fresh_database(superuser: str) -> str:
    """A migrated database that nobody has used."""
    name = f"bench_{uuid4().hex[:12]}"
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    conninfo = make_conninfo(superuser, dbname=name)
    migrate(conninfo, directory=MIGRATIONS)
    return conninfo


def body(number: int) -> str:
    """What every entry holds, here and there."""
    return json.dumps(
        {"order": number, "items": [{"sku": "A-1", "count": 3}], "note": "a hundred bytes or so of work to be done"}
    )


def limit(database: str, clients: int, seconds: float, *, events: bool) -> float:
    """Rows a second that so many clients insert together."""
    with multiprocessing.get_context("spawn").Pool(clients) as pool:
        done = pool.starmap(insert_for, [(database, seconds, events)] * clients)
    return sum(rows / taken for rows, taken in done)


def insert_for(database: str, seconds: float, events: bool) -> tuple[int, float]:
    """Inserts batches for a while; rows and seconds."""
    with Session.connect(session_conninfo(database, Bounds.within(10)), autocommit=True, prepare_threshold=0) as session:
        endpoint = session.execute(
            "insert into endpoints (id, name, credential_sha256) values (gen_random_uuid(), %s, sha256(%s)) returning id",
            (f"e-{uuid4().hex[:12]}", uuid4().bytes),
        ).fetchone()
        assert endpoint is not None
        statement = load("events/ingest" if events else "todos/create")
        rows = 0
        began = time.monotonic()
        spent = 0.0
        while time.monotonic() - began - spent < seconds:
            paused = time.monotonic()
            columns = (messages if events else todos)(endpoint[0], rows)
            spent += time.monotonic() - paused
            session.execute("begin")
            session.execute(statement, columns).fetchall()
            session.execute("commit")
            rows += BATCH_MESSAGES_MAX
        return rows, time.monotonic() - began - spent


def todos(endpoint: UUID, first: int) -> dict[str, object]:
    """The arrays of one batch of todos alone."""
    size = BATCH_MESSAGES_MAX
    return {
        "ordinals": list(range(size)),
        "endpoint_ids": [endpoint] * size,
        "queues": ["work"] * size,
        "sources": ["redis"] * size,
        "kinds": None,
        "titles": None,
        "payloads": [body(first + number) for number in range(size)],
        "assignees": None,
        "caps": [5] * size,
        "keys": keys(first),
        "event_ids": None,
    }


def messages(endpoint: UUID, first: int) -> dict[str, object]:
    """The arrays of one batch of events and their todos."""
    bodies = [body(first + number).encode() for number in range(BATCH_MESSAGES_MAX)]
    return {
        "endpoint_ids": [endpoint],
        "caps": [5],
        "native_ids": [True],
        "adapters": ["orders"],
        "queues": ["work"],
        "sources": ["redis"],
        "families": ["queue"],
        "trust_modes": ["queue"],
        "verified": [False],
        "verify_details": ["redis acl: default"],
        "content_types": [None],
        "origins": [0] * BATCH_MESSAGES_MAX,
        "external_ids": keys(first),
        "headers": None,
        "bodies": bodies,
        "hashes": [hashlib.sha256(text).digest() for text in bodies],
        "payloads": None,
        "kinds": None,
        "titles": None,
    }


def keys(first: int) -> list[str]:
    """Keys that nobody used before."""
    return [f"redis:orders:{uuid4().int >> 80}-{first + number}" for number in range(BATCH_MESSAGES_MAX)]


def measure(opener: Opener, redis: RedisServer, entries: int, turn: int) -> float:
    """Entries a second, from the first commit to the last, by the database's clock, all of them acknowledged."""
    name = f"orders{turn}"
    house = opener(adapters=[stream(redis, stream=name, enabled=False)])
    house.vend(ENDPOINT)
    until_state(house, "orders", "disabled")
    for first in range(0, entries, 1_000):
        with redis.client.pipeline(transaction=False) as pipe:
            for number in range(first, first + 1_000):
                pipe.xadd(name, {"payload": body(number)})
            pipe.execute()
    began = time.monotonic()
    switch(house, "orders", "enable")
    wait_until(lambda: count(house, "events") > 0, seconds=30, what="the first")
    first_at = time.monotonic()
    while redis.client.xinfo_groups(name)[0]["lag"] or redis.client.xpending(name, "switchboard")["pending"]:
        time.sleep(0.02)
    seconds = time.monotonic() - first_at
    assert count(house) == entries
    print(f"  round {turn + 1}: {entries / seconds:,.0f} a second, {first_at - began:.1f} s until the first", flush=True)
    assert house.stop() == 0
    return entries / seconds


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES))
