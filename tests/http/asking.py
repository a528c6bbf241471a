"""What the contract's tests ask with: problems to expect, rows to back-date, a table to lock, many callers at once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import psycopg

from tests.houses import PLAIN, Agent, House

JSON = {"Content-Type": "application/json"}
NEVER_MINTED = "01890a5d-ac96-774b-8000-b4aa9e2c6e11"

CALM: Mapping[str, Mapping[str, Any]] = {"queue": {"reap_interval_seconds": 3600, "retry_interval_seconds": 3600}}
"""Settings of a house whose sweeps never come: what a back-dated row becomes is then the request's doing alone."""

TODO_FIELDS = {
    "id",
    "endpoint_id",
    "queue",
    "source",
    "kind",
    "title",
    "state",
    "status",
    "payload",
    "payload_bytes",
    "result",
    "result_bytes",
    "error",
    "owner",
    "assignee",
    "attempt",
    "max_attempts",
    "idempotency_key",
    "event_id",
    "lease_token",
    "lease_expires_at",
    "next_retry_at",
    "created_at",
    "updated_at",
    "claimed_at",
    "completed_at",
}
LEASE_FIELDS = ("lease_token", "lease_expires_at")


def problem(reply: httpx.Response, status: int, code: str, field: str | None = None) -> dict[str, Any]:
    """Asserts that the reply is this problem, as RFC 9457 wants it, and returns it. What is no JSON blames the body."""
    field = "body" if field is None and status == HTTPStatus.BAD_REQUEST else field
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = reply.json()
    assert {"type", "title", "status", "code"} <= body.keys()
    assert body["status"] == status
    assert body["code"] == code, reply.text
    assert body.get("field") == field, reply.text
    return body


def error(result: Mapping[str, Any], code: str) -> dict[str, Any]:
    """Asserts that an item of a batch ended in this error, and in nothing else, and returns it."""
    assert result.keys() == {"error"}
    found: dict[str, Any] = result["error"]
    assert found["code"] == code, found
    assert {"title", "detail"} <= found.keys()
    return found


def post(http: httpx.Client, path: str, text: str | bytes, **headers: str) -> httpx.Response:
    """Posts a body of exactly these bytes."""
    return http.post(path, content=text if isinstance(text, bytes) else text.encode(), headers=JSON | headers)


def execute(house: House, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """One statement of a test's own on the house's database, committed; its rows, if it returns any."""
    assert house.database is not None
    with psycopg.connect(house.database, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


def row(house: House, todo: Mapping[str, Any]) -> dict[str, Any]:
    """A todo as it stands in the database, whatever the wire says of it."""
    ((found,),) = execute(house, "select to_json(t) from todos t where id = %s", todo["id"])
    return dict(found)


def let_lapse(house: House, todo: Mapping[str, Any]) -> None:
    """Moves the end of a claimed todo's lease into the past."""
    moved = execute(
        house,
        "update todos set lease_expires_at = clock_timestamp() - interval '1 second'"
        " where id = %s and state = 'claimed' returning 1",
        todo["id"],
    )
    assert moved, "it is not claimed"


def let_window_pass(house: House, todo: Mapping[str, Any]) -> None:
    """Moves a parked todo's retry window into the past."""
    moved = execute(
        house,
        "update todos set next_retry_at = clock_timestamp() - interval '1 second'"
        " where id = %s and next_retry_at is not null returning 1",
        todo["id"],
    )
    assert moved, "it is not parked"


def dead_letter(agent: Agent, **fields: Any) -> dict[str, Any]:
    """A todo that was claimed once, failed at its cap, and is dead now."""
    todo = agent.push(max_attempts=1, **fields)
    claimed = agent.verb("claim", todo).json()["todo"]
    dead: dict[str, Any] = agent.verb("fail", claimed, error="on purpose").json()["todo"]
    assert dead["status"] == "dead"
    return dead


@contextmanager
def locked_todos(house: House) -> Iterator[psycopg.Connection[Any]]:
    """Holds the whole table of todos, so that every statement of the house that touches it waits."""
    assert house.database is not None
    with psycopg.connect(house.database) as connection:
        connection.execute("lock table todos in access exclusive mode")
        yield connection
        connection.rollback()


@asynccontextmanager
async def many(house: House, agent: Agent, *, timeout_seconds: float = 30.0) -> AsyncIterator[httpx.AsyncClient]:
    """A client for many requests at once on as many connections."""
    async with httpx.AsyncClient(
        base_url=house.url,
        headers={"Authorization": f"Bearer {agent.credential}", **agent.lane_headers},
        timeout=timeout_seconds,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=False,
        verify=PLAIN,
    ) as http:
        yield http


def address(house: House) -> tuple[str, int]:
    """Where a plain socket connects to."""
    parts = urlsplit(house.url)
    return parts.hostname or "", parts.port or 0


def request_bytes(agent: Agent, path: str, body: Mapping[str, Any]) -> bytes:
    """A whole POST for a plain socket: costs next to nothing to send, and can be cut wherever a test likes."""
    content = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: house\r\nAuthorization: Bearer {agent.credential}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in agent.lane_headers.items())
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()


class Health:
    """Asks both health addresses all the time, from a thread; remembers the slowest answer and every status."""

    def __init__(self, house: House) -> None:
        self._address = address(house)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.slowest_seconds = 0.0
        self.answers: Counter[tuple[str, int]] = Counter()

    def _ask(self) -> None:
        connection = HTTPConnection(*self._address, timeout=30)
        while not self._stop.wait(0.03):
            for path in ("/healthz", "/readyz"):
                began = time.monotonic()
                connection.request("GET", path)
                reply = connection.getresponse()
                reply.read()
                self.answers[path, reply.status] += 1
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
        connection.close()

    def __enter__(self) -> Health:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def raw_field(reply: httpx.Response, field: str) -> str:
    """The text of a todo's field in a reply, exactly as it came: for what a parser would not tell apart.

    The field's own marker must be unique in the reply; `payload` and `payload_bytes` are told apart by the colon.
    """
    text = reply.text
    start = text.index(f'"{field}":') + len(field) + 3
    _, length = json.JSONDecoder().raw_decode(text[start:])
    return text[start : start + length]


def is_id(text: str) -> bool:
    """Whether this is an id in its one canonical spelling, time-ordered (v7)."""
    return str(UUID(text)) == text and UUID(text).version == 7
