"""The rulings about Redis, each by its number, on real houses."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any

from tests.houses import Opener, run, wait_until
from tests.redis.reading import (
    ENDPOINT,
    adapters,
    count,
    locked,
    pending,
    plain_list,
    poison,
    ready,
    rows,
    rows_changed,
    settled,
    stream,
    todos,
    until_state,
)
from tests.redis.servers import RedisServer


def test_r3_what_was_seen_is_known_and_other_bytes_are_quarantined(open_house: Opener, redis_server: RedisServer) -> None:
    """R3: a group that is lost and created again at 0 redelivers everything: done todos stay done, nothing is made twice.

    The same id with other bytes, in a stream that was deleted and made again, is quarantined, never silently acked. Where the
    pruner has forgotten a part, a lost group starts after it. A body hash collapses on live todos only.
    """
    house = open_house(adapters=[stream(redis_server), plain_list(redis_server)])
    agent = house.vend(ENDPOINT)
    client = redis_server.client
    for number in range(1, 6):
        client.xadd("orders", {"payload": f"{number}"}, id=f"{number}-0")
    client.lpush("jobs", "same", "same")
    todos(house, 6)
    for todo in agent.claim(max=10):
        agent.verb("complete", todo)
    client.xgroup_destroy("orders", "switchboard")
    wait_until(lambda: adapters(house)["orders"]["duplicates"] == 5, seconds=20, what="five duplicates")
    client.lpush("jobs", "same")
    todos(house, 7)  # the list's body is new work after its end; the stream's entries are not
    assert count(house, "todos", "state = 'done'") == 6
    client.delete("orders")
    client.xadd("orders", {"payload": "other"}, id="3-0")
    wait_until(lambda: count(house, "events", "disposition = 'quarantined'") == 1, seconds=20, what="a quarantined event")
    settled(redis_server)
    assert count(house) == 7
    rows_changed(house, "insert into forgotten_entries values ('orders', 7, 0)")
    client.delete("orders")
    wait_until(lambda: client.exists("orders") == 1, seconds=20, what="a stream that was made again")
    client.xgroup_destroy("orders", "switchboard")
    client.xadd("orders", {"payload": "6"}, id="6-0")
    client.xadd("orders", {"payload": "8"}, id="8-0")
    wait_until(lambda: count(house, "todos", "idempotency_key = 'redis:orders:8-0'") == 1, what="the entry after the gap")
    assert not count(house, "events", "external_id = 'redis:orders:6-0'")


def test_r18_endpoints_of_an_adapter(open_house: Opener, redis_server: RedisServer) -> None:
    """R18: it waits for endpoints that are not vended, starts by itself within 5 s, writes for all of them in one
    transaction, goes on without a revoked one, degraded, and stops when none is left. The rest of the house runs.
    """
    house = open_house(adapters=[stream(redis_server, endpoints=["a", "b"])])
    first = house.vend("a")
    told = until_state(house, "orders", "waiting_for_endpoint")
    wait_until(lambda: "endpoint b is not vended yet" in str(adapters(house)["orders"]["last_error"]), what="the reason")
    assert told["stored"] == 0
    redis_server.client.xadd("orders", {"payload": "1"})
    house.vend("b")
    began = time.monotonic()
    todos(house, 2)
    assert time.monotonic() - began < 5
    assert rows(house, "select count(distinct xmin::text), count(*), count(distinct endpoint_id) from events") == [(1, 2, 2)]
    revoke(house, "b")
    wait_until(lambda: ready(house)["status"] == "degraded", what="a degraded house")
    redis_server.client.xadd("orders", {"payload": "2"})
    wait_until(lambda: count(house, "todos", f"endpoint_id = '{first.id}'") == 2, what="work for the one that is left")
    assert count(house) == 3
    assert "endpoint b was revoked" in ready(house)["adapters"]["orders"]["last_error"]
    revoke(house, "a")
    until_state(house, "orders", "waiting_for_endpoint")
    redis_server.client.xadd("orders", {"payload": "3"})
    time.sleep(1.5)  # nothing is to happen, which has no event
    assert count(house, "events") == 3
    assert house.vend("c").push()


def test_r19_keys_and_namespaces(open_house: Opener, start_redis: Any) -> None:
    """R19: two adapters on streams of one name need a namespace, and then their keys differ."""
    one, two = start_redis(), start_redis()
    clash = [stream(one), stream(two, name="more")]
    house = open_house(adapters=[clash[0], {**clash[1], "namespace": "eu"}])
    house.vend(ENDPOINT)
    for server in (one, two):
        server.client.xadd("orders", {"payload": "1"}, id="1-0")
    todos(house, 2)
    keys = {key for (key,) in rows(house, "select idempotency_key from todos")}
    assert keys == {"redis:orders:1-0", "redis:eu/orders:1-0"}
    house.config.write_text(house.config.read_text().replace('namespace = "eu"\n', ""))
    refused = run("check", "--config", str(house.config))
    assert refused.returncode == 2
    assert "could mint the same idempotency keys, for endpoint reviewer, as adapter orders" in refused.stderr


def test_r20_pubsub_wants_an_explicit_word(open_house: Opener, redis_server: RedisServer) -> None:
    """R20: without `accept_loss = true` the house does not start."""
    house = open_house(wait=False, adapters=[stream(redis_server) | {"transport": "pubsub", "channel": "x"}])
    assert house.process.wait(20) == 2
    assert "`accept_loss = true`" in house.log()


def test_r21_the_flag_lives_in_the_database(open_house: Opener, redis_server: RedisServer) -> None:
    """R21: the configuration gives the first value only; a reading that cannot be had counts as unknown, and then nothing
    is consumed, until the database tells again.
    """
    house = open_house(adapters=[stream(redis_server, enabled=False)])
    house.vend(ENDPOINT)
    until_state(house, "orders", "disabled")
    redis_server.client.xadd("orders", {"payload": "1"})
    rows_changed(house, "update adapters set enabled = true")
    todos(house, 1)
    with locked(house, "adapters", "access exclusive"):
        wait_until(lambda: ready(house)["adapters"]["orders"]["state"] == "backing_off", what="an unknown flag")
        redis_server.client.xadd("orders", {"payload": "2"})
        time.sleep(1)  # nothing is to happen, which has no event
        assert count(house) == 1
        assert redis_server.client.xinfo_groups("orders")[0]["lag"] == 1
    todos(house, 2)
    assert house.stop() == 0
    again = open_house.again(house)
    until_state(again, "orders", "running")


def test_r22_bodies_that_json_or_postgres_cannot_hold(open_house: Opener, redis_server: RedisServer) -> None:
    """R22, C8, C1: every body becomes a todo: JSON as the text it is, anything else wrapped; its event keeps the raw bytes."""
    house = open_house(adapters=[stream(redis_server), plain_list(redis_server)])
    agent = house.vend(ENDPOINT)
    kept = [b'{"b": 1, "a": 2, "a": 1e999}', b' "\\\\u0000" ', b"12345678901234567890123", '"\N{PILE OF POO}"'.encode()]
    wrapped = [
        b"\xff\xfe",
        b"\x1f\x8b\x08gzip",
        "caf\xe9".encode("latin-1"),
        b"plain text",
        b"",
        b'{"a": "x\\u0000y"}',
        b'{"a\\u0000": 1}',
        b'"\\ud800"',
        b"[" * 101 + b"]" * 101,
        b"9" * 1_001,
        b'{"a": NaN}',
        b"\xef\xbb\xbf1",
    ]
    for body in kept + wrapped:
        redis_server.client.xadd("orders", {"payload": body})
        redis_server.client.lpush("jobs", body)
    redis_server.client.xadd("orders", {"a": b"\xff", "b": "text", "n": "x\0y"})
    todos(house, 2 * len(kept + wrapped) + 1)
    settled(redis_server)
    texts = [text for (text,) in rows(house, "select payload::text from todos")]
    for body in kept:
        assert texts.count(body.decode()) == 2
    payloads = [todo["payload"] for todo in agent.claim(max=100)]
    for body in wrapped:
        same = [p for p in payloads if isinstance(p, dict) and p.get("data") == base64.b64encode(body).decode()]
        assert len(same) == 2
        assert same[0]["encoding"] == "base64"
        assert same[0]["reason"]
    (fields,) = [p for p in payloads if isinstance(p, dict) and p.get("b") == "text"]
    assert (fields["a"]["data"], fields["n"]["data"]) == ("/w==", base64.b64encode(b"x\0y").decode())
    bodies = [body for (body,) in rows(house, "select body from events")]
    for body in kept + wrapped:
        assert bodies.count(body) == 2


def test_r23_c21_poison_is_quarantined_and_holds_nothing_up(open_house: Opener, redis_server: RedisServer) -> None:
    """R23, C21: good, poison, good, ten times: the good ones come through at once; each poison is tried ten times, then
    quarantined and acked. An outage in between counts for nothing. An operator releases one and discards another.
    """
    house = open_house(adapters=[stream(redis_server), plain_list(redis_server)])
    agent = house.vend(ENDPOINT)
    poison(house)
    with redis_server.client.pipeline() as together:
        for number in range(10):
            for body in (f'"good {number}"', f'"poison {number}"', f'"fine {number}"'):
                together.xadd("orders", {"payload": body})
        together.lpush("jobs", '"good"', '"poison"', '"fine"')
        together.execute()
    todos(house, 22)
    assert not count(house, "events", "disposition = 'quarantined'")
    with locked(house):
        time.sleep(4)  # an outage: longer than a lock is waited for
    wait_until(lambda: count(house, "events", "disposition = 'quarantined'") == 11, seconds=40, what="11 quarantined")
    settled(redis_server)
    wait_until(lambda: redis_server.client.llen("jobs:switchboard-1") == 0, what="an empty processing list")
    assert count(house) == 22
    assert count(house, "events", "disposition = 'stored'") == 22
    wait_until(lambda: adapters(house)["orders"]["quarantined"] == 10, what="ten that were counted")
    with house.operator() as http:
        listed = http.get("/operator/v1/events", params={"disposition": "quarantined", "limit": 3}).json()
        first, second, _ = listed["events"]
        assert "no_poison" in first["error"]
        assert first["todo_ids"] == []
        assert listed["next_cursor"]
        raw = http.get(f"/operator/v1/events/{first['id']}/raw")
        assert raw.content.startswith(b'"poison')
        assert raw.headers["content-type"] == "application/octet-stream"
        refused = http.post(f"/operator/v1/events/{first['id']}/release")
        assert refused.status_code == 422, refused.text
        rows_changed(house, "alter table todos drop constraint no_poison")
        released = http.post(f"/operator/v1/events/{first['id']}/release").json()["event"]
        assert released["disposition"] == "stored"
        assert http.post(f"/operator/v1/events/{first['id']}/release").status_code == 409
        discarded = http.post(f"/operator/v1/events/{second['id']}/discard").json()["event"]
        assert discarded["disposition"] == "discarded"
        assert http.get("/operator/v1/events/nonsense").status_code == 404
        one = http.get(f"/operator/v1/events/{first['id']}").json()["event"]
        assert one["endpoint"] == ENDPOINT
    assert agent.get({"id": released["todo_ids"][0]})["event_id"] == first["id"]
    shown = house.command("event", "list", "--disposition", "quarantined")
    assert "violates check constraint" in shown.stdout
    assert '"poison' in house.command("event", "raw", first["id"]).stdout
    assert "discarded" in house.command("event", "show", second["id"]).stdout
    third = http_ids(house)[0]
    assert "is stored" in house.command("event", "release", third).stdout


def test_r23_a_body_above_16_mib_is_quarantined_with_its_bytes(open_house: Opener, redis_server: RedisServer) -> None:
    """R23: too large for a todo, kept whole as an event, acked, and those behind it flow."""
    house = open_house(adapters=[stream(redis_server)])
    house.vend(ENDPOINT)
    redis_server.client.xadd("orders", {"payload": b"x" * (16 * 1024 * 1024 + 1)})
    redis_server.client.xadd("orders", {"payload": "1"})
    todos(house, 1, seconds=30)
    settled(redis_server)
    assert rows(house, "select disposition, octet_length(body) from events where todo_id is null") == [
        ("quarantined", 16 * 1024 * 1024 + 1)
    ]


def test_r24_c16_entries_whose_body_is_gone(open_house: Opener, redis_server: RedisServer) -> None:
    """R24, C16: pending entries that were trimmed away are acked, logged and counted as lost; they make no todo."""
    house = open_house(adapters=[stream(redis_server)])
    house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    with locked(house):
        ghosts = [redis_server.client.xadd("orders", {"payload": "1"}).decode() for _ in range(3)]
        wait_until(lambda: pending(redis_server) >= 1, what="pending entries")
        house.kill()
    had = pending(redis_server)
    redis_server.client.xtrim("orders", maxlen=0)
    again = open_house.again(house)
    redis_server.client.xadd("orders", {"payload": '"good"'})
    todos(again, 1)
    settled(redis_server)
    wait_until(lambda: adapters(again)["orders"]["lost_at_source"] == had, what="counted as lost")
    assert "entries_lost_at_source" in again.log()
    assert ghosts[0] in again.log()


def test_r26_a_redis_todo_rings_like_any_other(open_house: Opener, redis_server: RedisServer) -> None:
    """R26: a claim that waits is woken by a message from Redis, long before its own look."""
    house = open_house(adapters=[stream(redis_server)])
    agent = house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    claimed: list[float] = []

    def wait_for_work() -> None:
        assert len(agent.claim(wait_seconds=20)) == 1
        claimed.append(time.monotonic())

    waiting = threading.Thread(target=wait_for_work)
    waiting.start()
    time.sleep(0.5)  # until the claim waits: nothing outside tells when
    began = time.monotonic()
    redis_server.client.xadd("orders", {"payload": "1"})
    waiting.join()
    assert claimed[0] - began < 2


def test_r31_slots_of_two_processes(open_house: Opener, redis_server: RedisServer) -> None:
    """R31: two processes on one database have a consumer each. What a killed one leaves behind is the other's after its
    slot has expired, and not before; restarted, it has its own slot again. Its empty consumer is tidied.
    """
    adapters_of = [stream(redis_server, claim_idle_seconds=2), plain_list(redis_server)]
    one = open_house(adapters=adapters_of)
    one.vend(ENDPOINT)
    until_state(one, "orders", "running")
    two = open_house(adapters=adapters_of, database=one.database)
    until_state(two, "orders", "running")
    client = redis_server.client
    wait_until(lambda: consumers(redis_server) == {b"switchboard-1", b"switchboard-2"}, what="two consumers")
    with locked(one):
        wait_until(lambda: handed_out(redis_server, b"switchboard-2"), what="entries in the second's hands")
        two.kill()
        left = client.xpending_range("orders", "switchboard", "-", "+", 100, consumername="switchboard-2")
        assert left
    had = client.llen("jobs:switchboard-2")
    time.sleep(2)
    assert client.llen("jobs:switchboard-2") == had  # its slot is still its own, so nobody touches its list
    rows_changed(one, "update slots set beat_at = beat_at - interval '1 minute' where slot = 2")
    wait_until(lambda: pending(redis_server) == 0, seconds=40, what="nothing left behind")
    wait_until(lambda: client.llen("jobs:switchboard-2") == 0, seconds=20, what="nothing left behind in the list")
    assert count(one, "todos", "source = 'redis' and idempotency_key like 'redis:orders:%%'") == client.xlen("orders")
    wait_until(lambda: consumers(redis_server) == {b"switchboard-1"}, seconds=30, what="a tidy group")
    again = open_house.again(two)
    until_state(again, "orders", "running")
    wait_until(lambda: consumers(redis_server) == {b"switchboard-1", b"switchboard-2"}, what="its own slot again")


def consumers(server: RedisServer) -> set[bytes]:
    return {consumer["name"] for consumer in server.client.xinfo_consumers("orders", "switchboard")}


def handed_out(server: RedisServer, consumer: bytes) -> bool:
    """Adds one more until this consumer holds some."""
    server.client.xadd("orders", {"payload": "1"})
    server.client.lpush("jobs", f"job {time.monotonic()}")
    return bool(server.client.xpending_range("orders", "switchboard", "-", "+", 1, consumername=consumer))


def http_ids(house: Any) -> list[str]:
    with house.operator() as http:
        events = http.get("/operator/v1/events", params={"disposition": "quarantined"}).json()["events"]
    return [event["id"] for event in events]


def revoke(house: Any, name: str) -> None:
    with house.operator() as http:
        assert http.post(f"/operator/v1/endpoints/{name}/revoke").status_code == 200
