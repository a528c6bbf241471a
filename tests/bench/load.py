"""A load of HTTP requests from a process of its own, on bare sockets: a client library would take as long as the house.

    python -m tests.bench.load JSON

The argument holds the fields of `Load`; what it prints is the fields of `Served`, as JSON.
"""

from __future__ import annotations

import heapq
import json
import re
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from typing import Final, Literal
from uuid import uuid4

import attrs

from tests.bench.words import PAYLOAD, QUEUE

Work = Literal["lifecycle", "batches", "creates", "drain", "constant"]

LATE_SECONDS_MAX: Final = 30.0
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_ID: Final = re.compile(rb'"id": *"([0-9a-f-]{36})"')
_TOKEN: Final = re.compile(rb'"lease_token": *"([0-9a-f-]{36})"')


@attrs.frozen(kw_only=True)
class Load:
    """What to send. `lifecycle` creates, claims and completes one todo after the other; `batches` does so in batches.

    `per_second` spreads requests over time, for all connections together; None is as fast as they are answered.
    """

    host: str
    port: int
    credential: str
    work: Work
    connections: int = 64
    batch: int = 1
    warm_up_seconds: float = 0.5
    seconds: float = 4.0
    queue: str = QUEUE
    per_second: float | None = None


@attrs.frozen(kw_only=True)
class Served:
    """What was answered within the measured seconds."""

    requests_per_second: float
    todos_per_second: float
    """Todos created, or where some are completed, completed."""
    p50_ms: float
    p99_ms: float
    refused: int


def run_load(load: Load) -> Served:
    """Runs it in a process of its own."""
    words = [sys.executable, "-m", "tests.bench.load", json.dumps(attrs.asdict(load))]
    bound = load.warm_up_seconds + load.seconds + 2 * LATE_SECONDS_MAX
    done = subprocess.run(words, capture_output=True, text=True, timeout=bound, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the load failed: {done.stderr[-2000:]}")
    return Served(**json.loads(done.stdout))


Step = tuple[bytes, int, int]
"""A request, and how many todos its good answer has created and completed."""
Script = Generator[Step, bytes, None]


def script_of(load: Load) -> Callable[[], Script]:  # noqa: C901 - four short scripts over the same requests
    """What one connection says, answer by answer."""

    def request(path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {load.credential}\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    stem = uuid4().hex
    made = 0
    fields = f'"queue":"{load.queue}","payload":{PAYLOAD},"idempotency_key":"{stem}-'.encode()
    claim = request("/v1/claims", json.dumps({"queue": load.queue, "max": load.batch}).encode())

    def todo() -> bytes:
        nonlocal made
        made += 1
        return b'{%s%d"}' % (fields, made)

    def create() -> bytes:
        if load.batch == 1 and load.work != "batches":
            return request("/v1/todos", todo())
        return request("/v1/todos/batch", b'{"todos":[%s]}' % b",".join(todo() for _ in range(load.batch)))

    def lifecycle() -> Script:
        while True:
            yield create(), 1, 0
            answer = yield claim, 0, 0
            if (found := _ID.search(answer)) and (token := _TOKEN.search(answer)):
                path = f"/v1/todos/{found[1].decode()}/complete"
                yield request(path, b'{"lease_token":"%s"}' % token[1]), 0, 1

    def batches() -> Script:
        while True:
            yield create(), load.batch, 0
            answer = yield claim, 0, 0
            items = [
                b'{"id":"%s","lease_token":"%s"}' % pair for pair in zip(ids_in(answer), _TOKEN.findall(answer), strict=True)
            ]
            if items:
                yield request("/v1/todos/complete", b'{"items":[%s]}' % b",".join(items)), 0, len(items)

    def creates() -> Script:
        while True:
            yield create(), load.batch, 0

    def drain() -> Script:
        while True:
            answer = yield claim, 0, 0
            if (found := _ID.search(answer)) and (token := _TOKEN.search(answer)):
                path = f"/v1/todos/{found[1].decode()}/complete"
                yield request(path, b'{"lease_token":"%s"}' % token[1]), 0, 1

    def constant() -> Script:
        one = request("/v1/todos", todo())
        while True:
            yield one, 1, 0

    scripts = {"lifecycle": lifecycle, "batches": batches, "creates": creates, "drain": drain, "constant": constant}
    return scripts[load.work]


def ids_in(answer: bytes) -> list[bytes]:
    """The ids of the todos in an answer: the payload of this load has none."""
    return _ID.findall(answer)


class Connection:
    """One keep-alive connection, one request at a time."""

    def __init__(self, load: Load, script: Script) -> None:
        self.socket = socket.create_connection((load.host, load.port), timeout=LATE_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.script = script
        self.step = next(script)
        self.asked_at = 0.0
        self._answer = bytearray()
        self._length: int | None = None
        self._head = 0

    def ask(self) -> None:
        """Sends its next request; they are small enough for the socket's buffer, or wait for it."""
        self.asked_at = time.perf_counter()
        self.socket.sendall(self.step[0])

    def hear(self) -> tuple[int, bytes] | None:
        """Reads what has come; status and body once the answer is whole."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise ConnectionError(f"the server hung up after {bytes(self._answer[:200])!r}")
        self._answer += piece
        if self._length is None:
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return None
            length = _LENGTH.search(self._answer, 0, end)
            if length is None:
                raise ConnectionError(f"an answer without a length: {bytes(self._answer[:end])!r}")
            self._head, self._length = end + 4, int(length[1])
        if len(self._answer) < self._head + self._length:
            return None
        status, body = int(self._answer[9:12]), bytes(self._answer[self._head :])
        self._answer.clear()
        self._length = None
        return status, body


def serve(load: Load) -> Served:
    """Keeps all connections busy for a while."""
    script = script_of(load)
    connections = [Connection(load, script()) for _ in range(load.connections)]
    by_number = {connection.socket.fileno(): connection for connection in connections}
    poll = select.epoll()
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    took: list[float] = []
    created = completed = refused = 0
    began = time.perf_counter()
    counts_from = began + load.warm_up_seconds
    ends = counts_from + load.seconds
    pause = load.connections / load.per_second if load.per_second else 0.0
    # When each may ask next, where they are spread over time.
    turns = [(began + pause * place / load.connections, number) for place, number in enumerate(by_number)]
    while (now := time.perf_counter()) < ends:
        while turns and turns[0][0] <= now:
            _, number = heapq.heappop(turns)
            by_number[number].ask()
        wait = min(ends, turns[0][0] if turns else ends) - now
        for number, _ in poll.poll(max(0.0, wait)):
            connection = by_number[number]
            answer = connection.hear()
            if answer is None:
                continue
            status, body = answer
            now = time.perf_counter()
            if now >= counts_from:
                took.append(now - connection.asked_at)
                refused += status >= 300
                if status < 300:
                    created += connection.step[1]
                    completed += connection.step[2]
            connection.step = connection.script.send(body)
            if pause:
                heapq.heappush(turns, (max(now, connection.asked_at + pause), number))
            else:
                connection.ask()
    centiles = statistics.quantiles(took, n=100)
    return Served(
        requests_per_second=len(took) / load.seconds,
        todos_per_second=(completed or created) / load.seconds,
        p50_ms=1000 * centiles[49],
        p99_ms=1000 * centiles[98],
        refused=refused,
    )


if __name__ == "__main__":
    print(json.dumps(attrs.asdict(serve(Load(**json.loads(sys.argv[1]))))))
