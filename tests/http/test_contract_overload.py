"""More than the database can take: bounded waits, 503 with Retry-After, and what must go on meanwhile (C43)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import trio

from tests.houses import House
from tests.http.asking import Health, address, execute, locked_todos, many, problem, request_bytes

CLAIMS = 200
BOUNDED_SECONDS_MAX = 12
HEALTH_SECONDS_MAX = 1.0
NORMAL_SECONDS_MAX = 5.0


@contextmanager
def slow_claims(house: House, seconds: float) -> Iterator[None]:
    """Every claimed row takes its claim so long, and nothing else takes any longer."""
    execute(
        house,
        f"""
        create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep({seconds}); return new; end $$;
        create trigger dawdle before update on todos for each row
            when (new.state = 'claimed' and old.state = 'pending') execute function dawdle()
        """,
    )
    try:
        yield
    finally:
        execute(house, "drop trigger dawdle on todos; drop function dawdle()")


async def normal_again(http: httpx.AsyncClient) -> float:
    """How many seconds it takes until a todo is created, claimed and completed without an error."""
    began = trio.current_time()
    while True:
        created = await http.post("/v1/todos", json={"queue": "again"})
        claimed = await http.post("/v1/claims", json={"queue": "again"})
        if created.status_code == 201 and claimed.status_code == 200 and claimed.json()["todos"]:
            (todo,) = claimed.json()["todos"]
            completed = await http.post(f"/v1/todos/{todo['id']}/complete", json={"lease_token": todo["lease_token"]})
            if completed.status_code == 200:
                return trio.current_time() - began
        assert trio.current_time() - began < NORMAL_SECONDS_MAX


async def test_two_hundred_claims_on_a_locked_table(house: House) -> None:
    """C43: each is answered in bounded time with 503 and Retry-After; health answers within a second; then all is well."""
    agent = house.vend()
    for _ in range(5):
        agent.push()
    heads: list[bytes] = []
    took: list[float] = []

    async def claim() -> None:
        began = trio.current_time()
        async with await trio.open_tcp_stream(*address(house)) as stream:
            await stream.send_all(request_bytes(agent, "/v1/claims", {"queue": "work"}))
            heads.append(bytes(await stream.receive_some()).lower())
        took.append(trio.current_time() - began)

    with Health(house) as health, locked_todos(house):
        async with trio.open_nursery() as nursery:
            for _ in range(CLAIMS):
                nursery.start_soon(claim)
    async with many(house, agent) as http:
        assert await normal_again(http) < NORMAL_SECONDS_MAX
    assert len(heads) == CLAIMS
    for head in heads:
        assert head.startswith(b"http/1.1 503 ")
        assert b"\r\nretry-after: " in head
    assert max(took) < BOUNDED_SECONDS_MAX
    assert health.slowest_seconds < HEALTH_SECONDS_MAX
    assert health.answers.keys() == {("/healthz", 200), ("/readyz", 200)}
    assert len(agent.claim(queue="work", max=10)) == 5  # none was claimed by an answer of 503


async def test_slow_claims_alone_do_not_stop_heartbeats(house: House) -> None:
    """C43: the holder's verbs have capacity of their own: while every claim takes seconds, a lease is kept alive."""
    agent = house.vend()
    agent.push("held")
    (held,) = agent.claim(queue="held")
    agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "slow"}] * 60})
    beats: list[float] = []
    async with many(house, agent) as http, many(house, agent) as claims:
        with Health(house) as health, slow_claims(house, 0.3):
            async with trio.open_nursery() as nursery:
                for _ in range(14):
                    nursery.start_soon(_claim_slowly, claims)
                until = trio.current_time() + 2
                while trio.current_time() < until:
                    began = trio.current_time()
                    reply = await http.post(f"/v1/todos/{held['id']}/heartbeat", json={"lease_token": held["lease_token"]})
                    assert reply.status_code == 200
                    beats.append(trio.current_time() - began)
                    assert (await http.post("/v1/todos", json={"queue": "made"})).status_code == 201
        assert await normal_again(http) < NORMAL_SECONDS_MAX
    assert len(beats) > 5
    assert max(beats) < HEALTH_SECONDS_MAX
    assert health.slowest_seconds < HEALTH_SECONDS_MAX


async def _claim_slowly(http: httpx.AsyncClient) -> None:
    reply = await http.post("/v1/claims", json={"queue": "slow"})
    assert reply.status_code in (200, 503)


async def test_every_call_is_answered_in_bounded_time(house: House) -> None:
    """503 with Retry-After, never a 500 and never a hang; a waiting claim does not sit it out; what needs no todo works."""
    agent = house.vend()
    (todo, other) = agent.push()["id"], agent.push()["id"]
    calls: list[tuple[str, str, dict[str, object] | None]] = [
        ("POST", "/v1/todos", {"queue": "q"}),
        ("GET", "/v1/todos", None),
        ("GET", f"/v1/todos/{todo}", None),
        ("GET", "/v1/queues", None),
        ("POST", "/v1/claims", {"wait_seconds": 30}),
        *(("POST", f"/v1/todos/{todo}/{verb}", None) for verb in ("retry", "claim", "heartbeat", "complete", "release")),
    ]
    items = [{"id": todo}, {"id": other}]
    batches: list[tuple[str, dict[str, object]]] = [
        ("/v1/todos/heartbeat", {"items": items}),
        ("/v1/todos/fail", {"items": items}),
        ("/v1/todos/batch", {"todos": [{"queue": "q"}] * 2}),
    ]

    async def refused(http: httpx.AsyncClient, method: str, path: str, body: dict[str, object] | None) -> None:
        reply = await http.request(method, path, json=body)
        problem(reply, 503, "unavailable")
        assert int(reply.headers["retry-after"]) >= 1

    async def refused_one_by_one(http: httpx.AsyncClient, path: str, body: dict[str, object]) -> None:
        reply = await http.post(path, json=body)
        assert reply.status_code == 200
        assert [result["error"]["code"] for result in reply.json()["results"]] == ["unavailable"] * 2

    async with many(house, agent) as http:
        with locked_todos(house), trio.fail_after(BOUNDED_SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                for method, path, body in calls:
                    nursery.start_soon(refused, http, method, path, body)
                for path, items_ in batches:
                    nursery.start_soon(refused_one_by_one, http, path, items_)
                assert (await http.get("/v1/whoami")).status_code == 200
                assert (await http.get("/readyz")).json()["status"] == "ready"
        assert await normal_again(http) < NORMAL_SECONDS_MAX
    assert [agent.get({"id": id_})["status"] for id_ in (todo, other)] == ["pending"] * 2
