"""Houses that read from a Redis: their configuration, and what the tests look at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from tests.houses import House, wait_until
from tests.redis.servers import RedisServer

ENDPOINT = "reviewer"


def stream(server: RedisServer, **more: Any) -> dict[str, Any]:
    """An adapter on the stream `orders`."""
    return {
        "name": "orders",
        "transport": "stream",
        "url": server.url,
        "stream": "orders",
        "endpoints": [ENDPOINT],
        "queue": "work",
        **more,
    }


def plain_list(server: RedisServer, **more: Any) -> dict[str, Any]:
    """An adapter on the list `jobs`."""
    return {
        "name": "jobs",
        "transport": "list",
        "url": server.url,
        "list": "jobs",
        "endpoints": [ENDPOINT],
        "queue": "work",
        **more,
    }


def channel(server: RedisServer, **more: Any) -> dict[str, Any]:
    """An adapter on the channel `news`."""
    return {
        "name": "news",
        "transport": "pubsub",
        "url": server.url,
        "channel": "news",
        "endpoints": [ENDPOINT],
        "queue": "work",
        "accept_loss": True,
        **more,
    }


def rows(house: House, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What the house's database says."""
    assert house.database is not None
    with psycopg.connect(house.database, autocommit=True) as connection:
        return connection.execute(statement, values).fetchall()


def count(house: House, table: str = "todos", where: str = "true") -> int:
    """How many rows there are."""
    ((number,),) = rows(house, f"select count(*) from {table} where {where}")
    return int(number)


def todos(house: House, number: int, *, seconds: float = 15.0) -> None:
    """Waits until there are so many todos, and holds that there are no more."""
    wait_until(lambda: count(house) >= number, seconds=seconds, what=f"{number} todos (there are {count(house)})")
    assert count(house) == number


def adapters(house: House) -> dict[str, dict[str, Any]]:
    """Every adapter as the operator's API tells it, by name."""
    with house.operator() as http:
        reply = http.get("/operator/v1/adapters")
    assert reply.status_code == 200, reply.text
    return {adapter["name"]: adapter for adapter in reply.json()["adapters"]}


def until_state(house: House, name: str, state: str, *, seconds: float = 15.0) -> dict[str, Any]:
    """Waits until an adapter is in this state, by what this very process says; returns what the list says of it then."""
    wait_until(lambda: ready(house)["adapters"][name]["state"] == state, seconds=seconds, what=f"{name} {state}")
    wait_until(lambda: adapters(house)[name]["state"] == state, seconds=seconds, what=f"{name} listed as {state}")
    return adapters(house)[name]


def ready(house: House) -> dict[str, Any]:
    """What `/readyz` says."""
    with house.client() as http:
        reply: dict[str, Any] = http.get("/readyz").json()
    return reply


def switch(house: House, name: str, verb: str) -> None:
    """Enables or disables an adapter."""
    with house.operator() as http:
        reply = http.post(f"/operator/v1/adapters/{name}/{verb}")
    assert reply.status_code == 200, reply.text


def pending(server: RedisServer, key: str = "orders", group: str = "switchboard") -> int:
    """How many entries were handed out and never acknowledged."""
    return int(server.client.execute_command("XPENDING", key, group)["pending"])


def settled(server: RedisServer, key: str = "orders") -> None:
    """Waits until nothing is pending."""
    wait_until(lambda: pending(server, key) == 0, seconds=15, what="nothing pending")


@contextlib.contextmanager
def locked(house: House, table: str = "todos", mode: str = "exclusive") -> Iterator[None]:
    """Holds a table so that nothing can be written to it."""
    assert house.database is not None
    with psycopg.connect(house.database) as connection:
        connection.execute(f"lock table {table} in {mode} mode")
        yield
        connection.rollback()


def poison(house: House, word: str = "poison") -> None:
    """Makes the database refuse, for its own sake, every todo whose payload holds this word."""
    rows_changed(house, f"alter table todos add constraint no_poison check (payload::text not like '%{word}%') not valid")


def rows_changed(house: House, statement: str) -> None:
    """Runs a statement that returns nothing."""
    assert house.database is not None
    with psycopg.connect(house.database, autocommit=True) as connection:
        connection.execute(statement)
