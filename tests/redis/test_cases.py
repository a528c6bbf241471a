"""The field cases about Redis, each by its number, on real houses. C8 and C16, C20, C21 stand beside their rulings."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.houses import House, Opener, wait_until
from tests.redis.conftest import StartRedis
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
    rows_changed,
    settled,
    stream,
    switch,
    todos,
    until_state,
)
from tests.redis.servers import RedisServer


def test_c17_c19_a_group_that_is_lost_is_made_again_at_0(open_house: Opener, redis_server: RedisServer) -> None:
    """C17, C19: entries from before the first start; FLUSHALL, DEL and XGROUP DESTROY while it runs, while it is switched off:
    every entry becomes a todo, and the log stays short.
    """
    client = redis_server.client
    for _ in range(3):
        client.xadd("orders", {"payload": "1"})
    house = open_house(adapters=[stream(redis_server)])
    house.vend(ENDPOINT)
    todos(house, 3)
    client.flushall()
    client.xadd("orders", {"payload": "2"})
    todos(house, 4)
    client.delete("orders")
    for _ in range(3):
        client.xadd("orders", {"payload": "3"})
    todos(house, 7)
    client.xgroup_destroy("orders", "switchboard")
    client.xadd("orders", {"payload": "4"})
    todos(house, 8)
    switch(house, "orders", "disable")
    until_state(house, "orders", "disabled")
    client.delete("orders")
    for _ in range(3):
        client.xadd("orders", {"payload": "5"})
    switch(house, "orders", "enable")
    todos(house, 11)
    settled(redis_server)
    assert len(house.log().splitlines()) < 40


def test_c20_another_host_name_changes_nothing(open_house: Opener, redis_server: RedisServer) -> None:
    """C20: killed with entries in flight, and restarted without its state directory's memory: all are stored all the same."""
    house = open_house(adapters=[stream(redis_server, claim_idle_seconds=1)])
    house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    with locked(house):
        for number in range(5):
            redis_server.client.xadd("orders", {"payload": f"{number}"})
        wait_until(lambda: pending(redis_server) >= 1, what="entries in flight")
        house.kill()
    (house.directory / "state" / "slot-holder").unlink()
    again = open_house.again(house, environ={"HOSTNAME": "elsewhere"})
    todos(again, 5, seconds=30)
    wait_until(lambda: pending(redis_server) == 0, seconds=30, what="nothing pending")


def test_c21_an_outage_of_postgres_quarantines_nothing(open_house: Opener, redis_server: RedisServer) -> None:
    """C21, C41: while the database is away nothing is read, nothing counts against any message; afterwards all is stored."""
    house = open_house(adapters=[stream(redis_server)], embedded=True, settings={"server": {"shutdown_grace_seconds": 5}})
    agent = house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    (pid_file,) = house.directory.rglob("postmaster.pid")
    pid = int(pid_file.read_text().split()[0])

    os.kill(pid, signal.SIGKILL)
    for number in range(20):
        redis_server.client.xadd("orders", {"payload": f"{number}"})
    wait_until(lambda: len(todos_of(agent)) == 20, seconds=40, what="20 todos")
    wait_until(lambda: pending(redis_server) == 0, seconds=20, what="nothing pending")
    assert adapters(house)["orders"]["quarantined"] == 0


def test_c22_equal_bodies_of_a_list(open_house: Opener, redis_server: RedisServer) -> None:
    """C22: one todo while it is live and a new one after its end; another list is another key; nothing stays behind."""
    house = open_house(adapters=[plain_list(redis_server), plain_list(redis_server, name="more", list="more")])
    agent = house.vend(ENDPOINT)
    client = redis_server.client
    client.lpush("jobs", "same")
    client.lpush("jobs", "same")
    client.lpush("more", "same")
    todos(house, 2)
    wait_until(lambda: adapters(house)["jobs"]["duplicates"] == 1, what="a duplicate that was counted")
    for todo in agent.claim(max=10):
        agent.verb("complete", todo)
    client.lpush("jobs", "same")
    todos(house, 3)
    for name in ("jobs", "jobs:switchboard-1", "more", "more:switchboard-1"):
        wait_until(lambda name=name: client.llen(name) == 0, what=f"{name} empty")  # type: ignore[misc]


def test_c26_killed_connections_lose_nothing(open_house: Opener, redis_server: RedisServer) -> None:
    """C26: the adapter's connection is killed again and again while items come in, and the server is paused: each item
    becomes a todo, once, and both lists are empty in the end.
    """
    house = open_house(adapters=[plain_list(redis_server), stream(redis_server)])
    house.vend(ENDPOINT)
    until_state(house, "jobs", "running")
    client = redis_server.client
    dice = random.Random(26)
    sent = 0
    for _ in range(12):
        for _ in range(dice.randrange(1, 30)):
            sent += 1
            client.lpush("jobs", f"job {sent}")
            client.xadd("orders", {"payload": f"{sent}"})
        for entry in client.client_list():
            if entry["name"].startswith("switchboard:"):
                client.execute_command("CLIENT", "KILL", "ID", entry["id"])
        time.sleep(dice.random() * 0.5)
    client.execute_command("CLIENT", "PAUSE", "500")
    wait_until(lambda: count(house) >= 2 * sent, seconds=60, what=f"{2 * sent} todos")
    wait_until(lambda: client.llen("jobs:switchboard-1") == client.llen("jobs") == 0, seconds=60, what="empty lists")
    wait_until(lambda: pending(redis_server) == 0, seconds=60, what="nothing pending")
    assert count(house) == 2 * sent


def test_c27_a_replica_for_a_while(open_house: Opener, redis_server: RedisServer) -> None:
    """C27: the server turns into a replica of nothing and back: back-off with few connections, recovery unaided."""
    house = open_house(adapters=[stream(redis_server), plain_list(redis_server)])
    agent = house.vend(ENDPOINT)
    until_state(house, "jobs", "running")
    client = redis_server.client
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    until_state(house, "jobs", "backing_off")
    before = client.info("stats")["total_connections_received"]
    began = time.monotonic()
    while time.monotonic() - began < 4:
        agent.push()
        time.sleep(0.2)
    assert client.info("stats")["total_connections_received"] - before < 20
    assert "READONLY" in adapters(house)["jobs"]["last_error"] or "UNBLOCKED" in adapters(house)["jobs"]["last_error"]
    client.execute_command("REPLICAOF", "NO", "ONE")
    made = count(house)
    client.lpush("jobs", "x")
    client.xadd("orders", {"payload": "1"})
    wait_until(lambda: count(house) == made + 2, seconds=40, what="both again")


def test_c28_a_broken_adapter_is_named_and_the_others_go_on(open_house: Opener, redis_server: RedisServer) -> None:
    """C28: a wrong password, a key of the wrong type, missing permissions, a user that is disabled while it runs: each is
    named with command and key in `/readyz` and `adapter list`, the others and HTTP go on, and each recovers without a
    restart once it is mended. No secret is told anywhere.
    """
    client = redis_server.client
    client.set("wrong", "x")

    def user(name: str, *rules: str) -> str:
        client.execute_command("ACL", "SETUSER", name, "reset", "on", f">{SECRET}", "~*", "&*", "+@all", *rules)
        return redis_server.url.replace("redis://", f"redis://{name}:{SECRET}@")

    urls = {
        "no-xgroup": user("no-xgroup", "-xgroup"),
        "no-xack": user("no-xack", "-xack"),
        "no-blmove": user("no-blmove", "-blmove"),
        "no-channels": user("no-channels", "resetchannels"),
        "later": user("later"),
    }
    wrong_password = redis_server.url.replace("redis://", f"redis://later:{SECRET}x@")
    house = open_house(
        adapters=[
            stream(redis_server),
            stream(redis_server, name="password", stream="password", url=wrong_password),
            stream(redis_server, name="type", stream="wrong"),
            stream(redis_server, name="no-xgroup", stream="a", url=urls["no-xgroup"]),
            stream(redis_server, name="no-xack", stream="b", url=urls["no-xack"]),
            plain_list(redis_server, name="no-blmove", list="c", url=urls["no-blmove"]),
            channel(redis_server, name="no-channels", channel="d", url=urls["no-channels"]),
            stream(redis_server, name="later", stream="e", url=urls["later"]),
        ]
    )
    agent = house.vend(ENDPOINT)
    client.xadd("b", {"payload": "1"})
    until_state(house, "later", "running")
    client.execute_command("ACL", "SETUSER", "later", "off")
    client.execute_command("CLIENT", "KILL", "USER", "later")
    reasons = {
        "password": ["AUTH", "password"],
        "type": ["XREADGROUP wrong", "WRONGTYPE"],
        "no-xgroup": ["XGROUP CREATE a switchboard", "NOPERM"],
        "no-xack": ["XACK b", "NOPERM"],
        "no-blmove": ["BLMOVE c", "NOPERM"],
        "no-channels": ["SUBSCRIBE d", "NOPERM"],
        "later": ["AUTH"],
    }
    for name, words in reasons.items():
        wait_until(partial(broken, house, name, words), seconds=20, what=f"{name} broken for the right reason")
    assert ready(house)["status"] == "degraded"
    wait_until(lambda: adapters(house)["no-xack"]["last_error"] is not None, what="the list to say so too")
    listed = house.command("adapter", "list").stdout
    assert "NOPERM" in listed
    assert "WRONGTYPE" in listed
    made = count(house)
    client.xadd("orders", {"payload": "1"})
    agent.push()
    wait_until(lambda: count(house) >= made + 2, what="the others")
    for name in urls:
        user(name)
    client.delete("wrong")
    client.execute_command("ACL", "SETUSER", "later", f">{SECRET}x", "on")
    for name in reasons:
        wait_until(lambda name=name: ready(house)["adapters"][name]["state"] == "running", seconds=40, what=name)  # type: ignore[misc]
    wait_until(lambda: ready(house)["status"] == "ready", what="a house that is well again")
    assert not count(house, "events", "disposition = 'quarantined'")
    said = house.log() + house.said() + listed + str(client.client_list()) + str(ready(house))
    assert SECRET not in said


def test_c29_restarts_leave_no_consumers_behind(open_house: Opener, redis_server: RedisServer, request: Any) -> None:
    """C29: restarted again and again, also by kill -9, it has one consumer, and nothing is lost."""
    house = open_house(adapters=[stream(redis_server)])
    house.vend(ENDPOINT)
    sent = 0
    for turn in range(50 if request.config.getoption("--long") else 5):
        for _ in range(5):
            sent += 1
            redis_server.client.xadd("orders", {"payload": f"{sent}"})
        house.kill() if turn % 2 else house.stop()
        house = open_house.again(house)
    todos(house, sent)
    settled(redis_server)
    (consumer,) = redis_server.client.xinfo_consumers("orders", "switchboard")
    assert consumer["name"] == b"switchboard-1"


def test_c30_toggled_quickly(open_house: Opener, redis_server: RedisServer) -> None:
    """C30: switched off and on fifty times under traffic, every entry becomes one todo; SIGTERM while it is blocked ends
    the house at once.
    """
    house = open_house(adapters=[stream(redis_server), plain_list(redis_server)])
    house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    dice = random.Random(30)
    for turn in range(50):
        redis_server.client.xadd("orders", {"payload": f"{turn}"})
        redis_server.client.lpush("jobs", f"{turn}")
        rows_changed(house, f"update adapters set enabled = {'false' if turn % 2 else 'true'}")
        time.sleep(dice.random() * 0.2)
    rows_changed(house, "update adapters set enabled = true")
    todos(house, 100, seconds=30)
    settled(redis_server)
    until_state(house, "orders", "running")
    time.sleep(0.3)  # until it is blocked in its read
    began = time.monotonic()
    assert house.stop() == 0
    assert time.monotonic() - began < 4


def test_c31_a_channel_is_heard_again(open_house: Opener, redis_server: RedisServer) -> None:
    """C31: its connection killed, the server restarted: it subscribes again, once, and says that the mode loses."""
    house = open_house(adapters=[channel(redis_server)])
    house.vend(ENDPOINT)
    until_state(house, "news", "running")
    assert "pubsub_loses_messages" in house.log()
    redis_server.client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    published_until_heard(house, redis_server, "after the kill")
    redis_server.stop()
    redis_server.start()
    published_until_heard(house, redis_server, "after the restart")
    assert redis_server.client.execute_command("PUBSUB", "NUMSUB", "news") == [b"news", 1]


def test_c32_a_server_that_refuses_writes(open_house: Opener, redis_server: RedisServer) -> None:
    """C32: no memory, then a disk that takes no snapshot: back-off, no loss, no busy loop."""
    house = open_house(adapters=[plain_list(redis_server), stream(redis_server)])
    house.vend(ENDPOINT)
    until_state(house, "jobs", "running")
    client = redis_server.client
    switch(house, "jobs", "disable")
    until_state(house, "jobs", "disabled")
    client.lpush("jobs", *[f"job {number}" for number in range(20)])
    client.config_set("maxmemory", 1)
    switch(house, "jobs", "enable")
    until_state(house, "jobs", "backing_off")
    assert "OOM" in adapters(house)["jobs"]["last_error"]
    before = client.info("stats")["total_commands_processed"]
    time.sleep(2)
    assert client.info("stats")["total_commands_processed"] - before < 100
    client.config_set("maxmemory", 0)
    todos(house, 20, seconds=40)
    wait_until(lambda: client.llen("jobs:switchboard-1") == 0, what="an empty processing list")


@pytest.mark.parametrize("minutes", [0.1, pytest.param(3, marks=pytest.mark.long)])
def test_c25_idle(open_house: Opener, redis_server: RedisServer, minutes: float) -> None:
    """C25: idle, there is no error line, one stable connection for each adapter, hardly any work, and no storm of queries;
    switching one off still takes effect within two seconds.
    """
    house = open_house(adapters=[stream(redis_server), plain_list(redis_server), channel(redis_server)])
    house.vend(ENDPOINT)
    for name in ("orders", "jobs", "news"):
        until_state(house, name, "running")
    time.sleep(3)  # until the opening is over
    seconds = minutes * 60
    ids, cpu, commits = connections(redis_server), cpu_seconds(house), committed(house)
    commands = redis_server.client.info("stats")["total_commands_processed"]
    time.sleep(seconds)
    spent = cpu_seconds(house) - cpu
    done = committed(house) - commits
    print(f"idle for {seconds:.0f} s: {100 * spent / seconds:.2f} % CPU, {done} commits")
    assert connections(redis_server) == ids
    assert len(ids) == 3
    assert not [line for line in house.log().splitlines() if '"level": "error"' in line]
    assert (redis_server.client.info("stats")["total_commands_processed"] - commands) / seconds < 15
    assert done / (seconds + BACKEND_REPORTS_SECONDS) < 10
    if minutes >= 3:
        assert spent / seconds < 0.01
    began = time.monotonic()
    switch(house, "orders", "disable")
    wait_until(lambda: len(connections(redis_server)) == 2, seconds=4, what="one connection less")
    assert time.monotonic() - began < 2.5


def test_c28_a_broken_adapter_that_is_switched_off_is_off_at_once(open_house: Opener, start_redis: StartRedis) -> None:
    """R21, C28: however long it would still have backed off; switched on again, it tries at once."""
    server = start_redis()
    house = open_house(adapters=[stream(server)])
    house.vend(ENDPOINT)
    server.stop()
    wait_until(lambda: ready(house)["adapters"]["orders"]["consecutive_failures"] >= 5, seconds=30, what="a long pause")
    switch(house, "orders", "disable")
    wait_until(lambda: ready(house)["adapters"]["orders"]["state"] == "disabled", seconds=3, what="disabled")
    assert ready(house)["status"] == "ready"
    server.start()
    server.client.xadd("orders", {"payload": "1"})
    switch(house, "orders", "enable")
    todos(house, 1, seconds=4)


def test_c28_an_adapter_that_nobody_runs_is_not_shown_as_running(open_house: Opener, redis_server: RedisServer) -> None:
    """It was in a configuration once: it is neither listed nor switched."""
    house = open_house(adapters=[stream(redis_server)])
    rows_changed(
        house,
        "insert into adapters (name, transport, endpoints, queue, enabled, state, reported_at)"
        " values ('gone', 'stream', '{reviewer}', 'work', true, 'running', clock_timestamp() - interval '1 minute')",
    )
    assert list(adapters(house)) == ["orders"]
    with house.operator() as http:
        assert http.post("/operator/v1/adapters/gone/enable").status_code == 404


def test_a_server_older_than_6_2(open_house: Opener, start_redis: StartRedis) -> None:
    """Without BLMOVE, LMOVE and XAUTOCLAIM: lists are moved by BRPOPLPUSH; what others left in a group is taken by XCLAIM."""
    unknown = ("BLMOVE", "LMOVE", "XAUTOCLAIM")
    server = start_redis(*[word for command in unknown for word in ("--rename-command", command, "")])
    client = server.client
    client.xgroup_create("orders", "switchboard", "0", mkstream=True)
    for number in range(5):
        client.xadd("orders", {"payload": str(number)})
        client.lpush("jobs", f"job {number}")
    assert client.xreadgroup("switchboard", "stranger", {"orders": ">"}, count=3)
    house = open_house(adapters=[stream(server, claim_idle_seconds=1), plain_list(server)])
    house.vend(ENDPOINT)
    todos(house, 10, seconds=30)
    settled(server)
    wait_until(lambda: client.llen("jobs:switchboard-1") == 0, what="an empty processing list")


def test_items_of_a_slot_that_nobody_knows_are_told(open_house: Opener, redis_server: RedisServer) -> None:
    """The database was lost, or another house works there: not ours to take, and not ours to be silent about."""
    redis_server.client.lpush("jobs:switchboard-7", "stray")
    house = open_house(adapters=[plain_list(redis_server)])
    house.vend(ENDPOINT)
    wait_until(lambda: "processing_list_of_unknown_slot" in house.log(), what="a warning")
    assert "jobs:switchboard-7" in house.log()
    assert redis_server.client.llen("jobs:switchboard-7") == 1


SECRET = "marker-hunter2"


def broken(house: House, name: str, words: list[str]) -> bool:
    told = ready(house)["adapters"][name]
    return told["state"] == "backing_off" and all(word in str(told["last_error"]) for word in words)


def todos_of(agent: Any) -> list[Any]:
    try:
        reply = agent.http.get("/v1/todos", params={"limit": 200})
    except httpx.TransportError:
        return []
    return list(reply.json()["todos"]) if reply.status_code == 200 else []


def published_until_heard(house: House, server: RedisServer, word: str) -> None:
    made = count(house)

    def heard() -> bool:
        server.client.publish("news", f"{word} {time.monotonic()}")
        return count(house) > made

    wait_until(heard, seconds=30, what=f"something heard {word}")


def connections(server: RedisServer) -> set[tuple[str, str]]:
    return {(entry["name"], entry["id"]) for entry in server.client.client_list() if entry["name"].startswith("switchboard:")}


def cpu_seconds(house: House) -> float:
    words = Path(f"/proc/{house.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


BACKEND_REPORTS_SECONDS = 10
"""A backend that has become idle tells its commits this much later: the opening's may be counted in what follows it."""


def committed(house: House) -> int:
    ((number,),) = rows(house, "select xact_commit from pg_stat_database where datname = current_database()")
    return int(number)
