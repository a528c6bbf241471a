"""P8, and what waiting costs: from a create to the claim, or the event stream, that was waiting for it; ten thousand that wait.

    python -m tests.bench.doorbell [ROUNDS] [WAITERS] [STREAMS]

Latency is counted from the create's own answer, which follows its commit and its ring: below zero means that the waiter heard
first. The statements of a crowd that waits, whose claims all begin anew meanwhile, are counted in the server's log, beside
those of the same house with nobody there. Client, house and server share the machine's cores.
"""

from __future__ import annotations

import math
import re
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import psycopg
import trio

from switchboard.database.embedded import start
from switchboard.state_dir import prepare
from tests.bench.attached import answered, connect, request_of
from tests.bench.redis_stream import fresh_database
from tests.houses import PLAIN, Agent, House, Opener

ROUNDS, WAITERS, STREAMS = 500, 10_000, 1_000
NOBODY_SECONDS = 10.0
WAIT_SECONDS = 60
WATCHED_SECONDS = 60.0
"""Each waiting claim ends with nothing and begins anew within it."""
CALM = {"queue": {"reap_interval_seconds": 3600, "retry_interval_seconds": 3600}}
STATEMENT = re.compile(rb"LOG:  (?:execute [^:]*|statement): (.*)")
P50_MS_MAX, P99_MS_MAX = 2.0, 10.0
QUERIES_PER_SECOND_MAX = 2.0
RSS_MB_MAX = 250


def main(rounds: int, waiters: int, streams: int) -> int:
    """Runs it; prints the figures; 0 when they are reached."""
    raise_file_limit()
    directory = Path(tempfile.mkdtemp(prefix="switchboard-bench-"))
    directory.chmod(0o755)
    server = start(prepare(directory / "postgres"))
    opener = Opener(directory, lambda: fresh_database(server.conninfo))
    try:
        house = opener(settings=CALM)
        agent = house.vend()
        claims = trio.run(pick_up, house, agent, rounds, "claim")
        events = trio.run(pick_up, house, agent, rounds, "stream")
        reached = tell("a waiting claim", claims) & tell("an event stream", events)
        house.stop()
        logged = opener(settings=CALM, database=logging_database(server.conninfo))
        log = directory / "postgres" / "postgres.log"
        return 0 if reached & trio.run(crowd, logged, logged.vend(), log, waiters, streams) else 1
    finally:
        opener.close()
        server.stop(10)
        shutil.rmtree(directory, ignore_errors=True)


def raise_file_limit() -> None:
    """As many open files as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def tell(who: str, seconds: Sequence[float]) -> bool:
    """Prints the percentiles."""
    p50, p99 = centiles_ms(seconds)
    print(f"P8: create to {who}: p50 {p50:.2f} ms, p99 {p99:.2f} ms (at most {P50_MS_MAX:g} and {P99_MS_MAX:g})", flush=True)
    return p50 <= P50_MS_MAX and p99 <= P99_MS_MAX


def centiles_ms(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99, in milliseconds."""
    cut = statistics.quantiles(seconds, n=100)
    return 1000 * cut[49], 1000 * cut[98]


async def pick_up(house: House, agent: Agent, rounds: int, way: str, seconds_max: float = math.inf) -> list[float]:
    """Seconds from the answer of a create to whoever waited for it, time after time; on bare sockets.

    `way` is "claim" or "stream"; the queue is a new one, in which nothing waits. Ends early after `seconds_max`.
    """
    took: list[float] = []
    queue = f"{way}-{uuid4().hex[:8]}"
    ends = trio.current_time() + seconds_max
    create = request_of(agent, "POST", "/v1/todos", {"queue": queue})
    async with await connect(house) as creator, await connect(house) as waiter, trio.open_nursery() as nursery:
        heard, seated = trio.open_memory_channel[float](0)
        nursery.start_soon(wait_for_claims if way == "claim" else listen, agent, waiter, queue, heard)
        await trio.sleep(0.5)
        for _ in range(rounds):
            if trio.current_time() > ends:
                break
            await creator.send_all(create)
            assert await answered(creator) == 201
            told_at = trio.current_time()
            took.append(await seated.receive() - told_at)
            await trio.sleep(0.01)  # until the next wait has begun
        nursery.cancel_scope.cancel()
    return took


async def wait_for_claims(agent: Agent, stream: trio.SocketStream, queue: str, heard: trio.MemorySendChannel[float]) -> None:
    """One long poll after the other."""
    request = request_of(agent, "POST", "/v1/claims", {"queue": queue, "wait_seconds": 60})
    while True:
        await stream.send_all(request)
        assert await answered(stream) == 200
        await heard.send(trio.current_time())


async def listen(agent: Agent, stream: trio.SocketStream, queue: str, heard: trio.MemorySendChannel[float]) -> None:
    """One event stream."""
    await stream.send_all(request_of(agent, "GET", f"/v1/doorbell?queue={queue}", None))
    while True:
        piece = await stream.receive_some(65_536)
        now = trio.current_time()
        for _ in range(piece.count(b"event: todo_ready")):
            await heard.send(now)


def logging_database(server: str) -> str:
    """A database all of whose statements are logged."""
    conninfo = fresh_database(server)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"alter database {connection.info.dbname} set log_statement = 'all'")
    return conninfo


async def crowd(house: House, agent: Agent, log: Path, waiters: int, streams: int) -> bool:
    """Statements a second while so many wait, and whom one todo wakes."""
    nobody = await statements(log, NOBODY_SECONDS)
    address = urlsplit(house.url)
    host, port = str(address.hostname), int(address.port or 0)
    woken: list[int] = []
    async with trio.open_nursery() as nursery:
        limit = trio.CapacityLimiter(200)
        for _ in range(waiters):
            await nursery.start(sit, host, port, agent.credential, limit, woken)
        for _ in range(streams):
            await nursery.start(attach, host, port, agent.credential, limit)
        await trio.sleep(3)  # the first claims, and what already waits for each stream
        extra = await statements(log, WATCHED_SECONDS) - nobody
        memory = rss_mb(house)
        print(
            f"{waiters:,} waiting claims and {streams:,} event streams: {extra:.2f} queries a second more than the "
            f"{nobody:.2f} with nobody (at most {QUERIES_PER_SECOND_MAX:g}), {memory} MB (at most {RSS_MB_MAX})",
            flush=True,
        )
        async with client(house, agent) as http:
            await http.post("/v1/todos", json={"queue": "crowd"})
        await trio.sleep(3)
        print(f"one todo wakes {len(woken)} of them")
        nursery.cancel_scope.cancel()
    return extra <= QUERIES_PER_SECOND_MAX and memory <= RSS_MB_MAX and len(woken) == 1


def rss_mb(house: House) -> int:
    """What the house holds in memory, in MB."""
    status = Path(f"/proc/{house.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024


async def statements(log: Path, seconds: float) -> float:
    """Statements a second, as the server logs them; BEGIN and COMMIT, which frame them, are none."""
    path = trio.Path(log)
    before = len(await path.read_bytes())
    await trio.sleep(seconds)
    found = STATEMENT.findall((await path.read_bytes())[before:])
    return sum(words not in (b"begin", b"commit", b"rollback") for words in found) / seconds


async def sit(
    host: str,
    port: int,
    credential: str,
    limit: trio.CapacityLimiter,
    woken: list[int],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """A claim that waits, again and again, on a bare socket: ten thousand clients of a library would not fit."""
    body = b'{"queue":"crowd","wait_seconds":%d}' % WAIT_SECONDS
    head = f"POST /v1/claims HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {credential}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    async with limit:
        stream = await trio.open_tcp_stream(host, port)
        await stream.send_all(request)
    task_status.started()
    async with stream:
        while True:
            answer = await stream.receive_some(65_536)
            if b'"todos":[{' in answer:
                woken.append(1)
            await stream.send_all(request)


async def attach(
    host: str,
    port: int,
    credential: str,
    limit: trio.CapacityLimiter,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """An event stream on a bare socket."""
    async with limit:
        stream = await trio.open_tcp_stream(host, port)
        await stream.send_all(
            f"GET /v1/doorbell?queue=crowd HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {credential}\r\n\r\n".encode()
        )
    task_status.started()
    async with stream:
        while await stream.receive_some(65_536):
            pass


def client(house: House, agent: Agent) -> httpx.AsyncClient:
    """A client of one connection."""
    headers = {"Authorization": f"Bearer {agent.credential}"}
    return httpx.AsyncClient(base_url=house.url, headers=headers, timeout=90, trust_env=False, verify=PLAIN)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(given + [ROUNDS, WAITERS, STREAMS][len(given) :])))
