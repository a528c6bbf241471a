"""Webhooks: deliveries a second and how long each takes, beside plain creates of the same body in the same run.

    python -m tests.bench.hooks [SECONDS]

Signed deliveries (GitHub's scheme), each with an id of its own, for one route and for two, from 64 connections; the creates
carry an idempotency key, so that both do the same durable work but for the event. In turns; trust the ratios alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import trio

from switchboard.database.embedded import start
from switchboard.state_dir import prepare
from tests.bench.attached import answered, connect
from tests.bench.redis_stream import fresh_database
from tests.houses import Agent, House, Opener
from tests.http.pushing import KEY, Hook, hook

SECONDS, ROUNDS = 4.0, 3
CONNECTIONS = 64
BODY = json.dumps({"ref": "refs/heads/main", "repository": {"full_name": "o/r"}, "pad": "x" * 800}).encode()


def main(seconds: float) -> int:
    """Runs it; prints the figures."""
    directory = Path(tempfile.mkdtemp(prefix="switchboard-bench-"))
    directory.chmod(0o755)
    server = start(prepare(directory / "postgres"))
    opener = Opener(directory, lambda: fresh_database(server.conninfo))
    try:
        house = opener(settings={"webhooks": {"rate_per_second": 100_000, "burst": 1_000_000}})
        a, b = house.vend(), house.vend()
        asks = {
            "create, with a key": lambda: create(a),
            "delivery to one endpoint": deliver(hook(house, "github", a)),
            "delivery to two endpoints": deliver(hook(house, "github", a, b)),
        }
        rates: dict[str, list[float]] = {name: [] for name in asks}
        took: dict[str, list[float]] = {name: [] for name in asks}
        for _ in range(ROUNDS):
            for name, ask in asks.items():
                seen = trio.run(load, house, ask, seconds)
                rates[name].append(len(seen) / seconds)
                took[name] += seen
    finally:
        opener.close()
        server.stop(10)
        shutil.rmtree(directory, ignore_errors=True)
    plain = statistics.median(rates["create, with a key"])
    for name in asks:
        p50, p99 = (1000 * statistics.quantiles(took[name], n=100)[place] for place in (49, 98))
        rate = statistics.median(rates[name])
        print(f"{name:<28}{rate:>8,.0f} a second, {rate / plain:.2f} of creates; p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    return 0


def create(agent: Agent) -> bytes:
    """One create, as a whole request."""
    body = json.dumps({"queue": "work", "idempotency_key": uuid4().hex, "payload": json.loads(BODY)}).encode()
    return _request("/v1/todos", body, f"Authorization: Bearer {agent.credential}\r\n")


def deliver(webhook: Hook) -> Callable[[], bytes]:
    """One delivery, as a whole request; the signature is made once, the provider's work is not what is measured."""
    signature = hmac.new(KEY.encode(), BODY, hashlib.sha256).hexdigest()

    def ask() -> bytes:
        headers = f"X-Hub-Signature-256: sha256={signature}\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: {uuid4()}\r\n"
        return _request(webhook.path, BODY, headers)

    return ask


def _request(path: str, body: bytes, headers: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def load(house: House, ask: Callable[[], bytes], seconds: float) -> list[float]:
    """Seconds that each request took, from `CONNECTIONS` connections at once."""
    took: list[float] = []
    ends = trio.current_time() + seconds

    async def one() -> None:
        async with await connect(house) as stream:
            while (began := trio.current_time()) < ends:
                await stream.send_all(ask())
                assert await answered(stream) in (201, 202)
                took.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(one)
    return took


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
