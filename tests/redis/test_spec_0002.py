"""SPEC-0002, scenario by scenario, each named after it: a real house, a real Postgres, a real Redis-compatible server."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.houses import ROOT, House, Opener, no_leftovers, run, wait_until
from tests.redis.reading import (
    ENDPOINT,
    adapters,
    channel,
    count,
    locked,
    pending,
    plain_list,
    ready,
    rows,
    settled,
    stream,
    switch,
    todos,
    until_state,
)
from tests.redis.servers import RedisServer


@attrs.frozen
class Reader:
    """One house that reads from one server by many adapters, a stream, list or channel for each test that does no harm."""

    house: House
    redis: RedisServer

    def until_todo(self, key: str) -> None:
        """Waits for the todo of this key."""
        wait_until(lambda: count(self.house, "todos", f"idempotency_key = '{key}'") == 1, seconds=15, what=key)


@pytest.fixture(scope="module")
def reader(open_directory: Path, new_database: Callable[[], str], shared_redis: RedisServer) -> Iterator[Reader]:
    """The house of the tests that share one. It proves itself to Redis as `deploy-bot`."""
    shared_redis.client.acl_setuser(
        "deploy-bot", enabled=True, passwords=["+hunter2"], keys="*", channels="*", categories=["+@all"]
    )
    url = shared_redis.url.replace("redis://", "redis://deploy-bot:hunter2@")
    names = ("keys", "trusted", "flagged", "batched", "injected")
    opener = Opener(open_directory, new_database)
    house = opener(
        adapters=[
            *[stream(shared_redis, name=name, stream=name, url=url) for name in names],
            plain_list(shared_redis, name="hashed", list="hashed", url=url),
            channel(shared_redis, name="spoken", channel="spoken", url=url),
        ]
    )
    house.vend(ENDPOINT)
    yield Reader(house, shared_redis)
    opener.close()
    no_leftovers(opener.directories)


def test_crash_before_todo_store_redelivers_and_dedups_to_one_todo(open_house: Opener, redis_server: RedisServer) -> None:
    """kill -9 between consume and store: the message is still the broker's, and becomes one todo after the restart.

    C20: a table is locked while the house is killed; the same with a list, whose processing list holds the message.
    """
    house = open_house(adapters=[stream(redis_server), plain_list(redis_server)])
    house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    with locked(house):
        with redis_server.client.pipeline() as together:
            for number in range(5):
                together.xadd("orders", {"payload": f"{number}"})
                together.lpush("jobs", f"job {number}")
            together.execute()
        wait_until(lambda: pending(redis_server) == 5, what="five entries handed out")
        wait_until(lambda: redis_server.client.llen("jobs:switchboard-1") == 5, what="five items on the processing list")
        house.kill()
    assert (count(house), pending(redis_server), redis_server.client.llen("jobs:switchboard-1")) == (0, 5, 5)
    again = open_house.again(house)
    todos(again, 10)
    settled(redis_server)
    wait_until(lambda: redis_server.client.llen("jobs:switchboard-1") == 0, what="an empty processing list")
    (consumer,) = redis_server.client.xinfo_consumers("orders", "switchboard")
    assert consumer["name"] == b"switchboard-1"


def test_ack_happens_only_after_durable_store(open_house: Opener, redis_server: RedisServer) -> None:
    """While the todo cannot be stored there is no ack, in a stream and in a list; after the store there is.

    Store failure leaves message for redelivery: the error is logged with adapter and message id, and it is tried again.
    """
    house = open_house(adapters=[stream(redis_server), plain_list(redis_server)])
    house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    until_state(house, "jobs", "running")
    with locked(house):
        entry = redis_server.client.xadd("orders", {"payload": "1"}).decode()
        redis_server.client.lpush("jobs", "x")
        wait_until(lambda: "store_failed" in house.log(), what="a store that failed")
        assert (count(house), pending(redis_server)) == (0, 1)
        assert redis_server.client.llen("jobs:switchboard-1") == 1
        assert "cmdstat_xack" not in redis_server.client.info("commandstats")
    todos(house, 2)
    settled(redis_server)
    wait_until(lambda: redis_server.client.llen("jobs:switchboard-1") == 0, what="an empty processing list")
    (line,) = [line for line in house.log().splitlines() if "store_failed" in line and "redis:orders" in line][:1]
    assert f'"redis:orders:{entry}"' in line
    assert '"adapter": "orders"' in line


def test_store_failure_leaves_message_for_redelivery(open_house: Opener, redis_server: RedisServer) -> None:
    """Postgres refuses every write for a while: nothing is acked, the house stays up, and all of it is stored afterwards.

    C42: a read-only database. Broker error backs off, not crashes, is the next test.
    """
    house = open_house(adapters=[stream(redis_server)])
    house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    with locked(house, "events"):
        for number in range(20):
            redis_server.client.xadd("orders", {"payload": f"{number}"})
        wait_until(lambda: adapters(house)["orders"]["state"] == "backing_off", what="the adapter backing off")
        assert "store of redis:orders:" in adapters(house)["orders"]["last_error"]
        assert pending(redis_server) >= 1
        assert count(house) == 0
    todos(house, 20)
    settled(redis_server)
    assert not count(house, "events", "disposition <> 'stored'")


def test_redis_stream_entry_id_becomes_the_idempotency_key(reader: Reader) -> None:
    """The key is `redis:{stream}:{entry-id}`."""
    entry = reader.redis.client.xadd("keys", {"payload": '{"a": 1}'}).decode()
    reader.until_todo(f"redis:keys:{entry}")


def test_list_pub_sub_message_uses_a_body_hash(reader: Reader) -> None:
    """The key is `redis:{name}:{sha256 hex of the raw body}`, for a list and for a channel."""
    body = b'{"hello":  "world"}'
    reader.redis.client.lpush("hashed", body)
    wait_until(lambda: reader.redis.client.publish("spoken", body) == 1, what="a subscriber")
    for name in ("hashed", "spoken"):
        reader.until_todo(f"redis:{name}:{hashlib.sha256(body).hexdigest()}")


def test_pull_event_carries_queue_trust_metadata(reader: Reader) -> None:
    """family and trust mode are `queue`, nothing is verified, and the detail names the ACL user that Redis says we are."""
    entry = reader.redis.client.xadd("trusted", {"payload": "1", "tenant": "blue"}).decode()
    reader.until_todo(f"redis:trusted:{entry}")
    (row,) = rows(
        reader.house,
        "select family, trust_mode, verified, verify_detail, headers::text, source, adapter, todo_id = ("
        " select id from todos t where t.event_id = e.id) from events e where external_id = %s",
        f"redis:trusted:{entry}",
    )
    assert row == ("queue", "queue", False, "redis acl: deploy-bot", '{"tenant": "blue"}', "redis", "trusted", True)
    assert "hunter2" not in reader.house.log() + str(adapters(reader.house))


def test_disabled_adapter_does_not_consume(reader: Reader) -> None:
    """Switched off, it reads nothing, and says so; switched on, it goes on where it was. R21: within two seconds."""
    until_state(reader.house, "flagged", "running")
    switch(reader.house, "flagged", "disable")
    until_state(reader.house, "flagged", "disabled", seconds=4)
    entry = reader.redis.client.xadd("flagged", {"payload": "1"}).decode()
    time.sleep(1.5)  # nothing is to happen, which has no event
    assert reader.redis.client.xinfo_groups("flagged")[0]["entries-read"] in (0, None)
    assert not count(reader.house, "todos", f"idempotency_key = 'redis:flagged:{entry}'")
    assert ready(reader.house)["adapters"]["flagged"]["state"] == "disabled"
    switch(reader.house, "flagged", "enable")
    reader.until_todo(f"redis:flagged:{entry}")


def acks_so_far(server: RedisServer) -> int:
    """How often it was told XACK."""
    return int(server.client.info("commandstats").get("cmdstat_xack", {"calls": 0})["calls"])


def test_stream_consumer_group_acks_after_store(reader: Reader) -> None:
    """XREADGROUP, one transaction, then one XACK: a whole batch costs one of each, not one for each entry."""
    switch(reader.house, "batched", "disable")
    until_state(reader.house, "batched", "disabled", seconds=4)
    entries = [reader.redis.client.xadd("batched", {"payload": f"{number}"}).decode() for number in range(500)]
    before = acks_so_far(reader.redis)
    switch(reader.house, "batched", "enable")
    wait_until(lambda: count(reader.house, "todos", "idempotency_key like 'redis:batched:%%'") == 500, what="500 todos")
    settled(reader.redis, "batched")
    assert acks_so_far(reader.redis) - before <= 10
    commits = rows(reader.house, "select count(distinct xmin::text) from events where external_id like 'redis:batched:%%'")
    assert commits[0][0] <= 10
    keys = rows(reader.house, "select idempotency_key from todos where idempotency_key like 'redis:batched:%%'")
    assert {key for (key,) in keys} == {f"redis:batched:{entry}" for entry in entries}


def test_pub_sub_is_loss_tolerant_only(reader: Reader) -> None:
    """R20: refused unless the operator accepts the loss; documented in the README and the configuration, said at the start."""
    config = reader.house.directory / "lossy.toml"
    config.write_text(
        '[[adapters]]\nname = "news"\ntransport = "pubsub"\nurl = "redis://h"\nchannel = "news"\nendpoints = ["a"]\n'
    )
    refused = run("check", "--config", str(config))
    assert refused.returncode == 2
    assert "loses every message" in refused.stderr
    wait_until(lambda: "pubsub_loses_messages" in reader.house.log(), what="the warning")
    for document in (ROOT / "README.md", ROOT / "config" / "switchboard.toml"):
        assert "accept_loss" in document.read_text()


def test_graceful_shutdown_stops_consuming_and_abandons_in_flight_safely(open_house: Opener, redis_server: RedisServer) -> None:
    """SIGTERM in the middle of a store: exit 0 in time, no connection left, and the entries are still the broker's."""
    house = open_house(adapters=[stream(redis_server)], settings={"server": {"shutdown_grace_seconds": 3}})
    house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    with locked(house):
        for number in range(3):
            redis_server.client.xadd("orders", {"payload": f"{number}"})
        wait_until(lambda: pending(redis_server) >= 1, what="entries in flight")
        began = time.monotonic()
        assert house.stop() == 0
        assert time.monotonic() - began < 6
        assert pending(redis_server) >= 1
    assert [entry for entry in redis_server.client.client_list() if entry["name"].startswith("switchboard")] == []
    again = open_house.again(house)
    todos(again, 3)
    settled(redis_server)


def test_broker_error_backs_off_not_crashes(open_house: Opener, redis_server: RedisServer) -> None:
    """The broker dies and comes back: the house serves on, says what is wrong, and recovers unaided."""
    house = open_house(adapters=[stream(redis_server)])
    agent = house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    redis_server.stop(signal.SIGKILL)
    told = until_state(house, "orders", "backing_off")
    assert told["consecutive_failures"] >= 1
    assert "BrokerError" in told["last_error"]
    assert ready(house)["status"] == "degraded"
    agent.push()
    redis_server.start()
    redis_server.client.xadd("orders", {"payload": "1"})
    todos(house, 2)
    assert house.process.poll() is None


def test_todo_persisted_with_parameterized_queries_before_ack(reader: Reader) -> None:
    """A body that is SQL stays a body; the session that stores it has time-outs; the ack follows the commit."""
    body = "'); drop table todos; --"
    entry = reader.redis.client.xadd("injected", {"payload": body, "'; --": "%(x)s"}).decode()
    reader.until_todo(f"redis:injected:{entry}")
    settled(reader.redis, "injected")
    (row,) = rows(reader.house, "select body from events where external_id = %s", f"redis:injected:{entry}")
    assert row == (body.encode(),)
    # test_bounds of the border hold the time-outs themselves; here, that nothing of it waits for ever.
    sessions = rows(
        reader.house,
        "select state, xact_start is null or clock_timestamp() - xact_start < interval '10 s' from pg_stat_activity"
        " where application_name = 'switchboard' and datname = current_database()",
    )
    assert sessions
    assert all(bounded for _, bounded in sessions)
