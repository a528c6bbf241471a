"""What an operator sees and does about adapters and events, over HTTP and on the command line; and the demo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.houses import RUN, Opener, wait_until
from tests.redis.reading import ENDPOINT, adapters, ready, rows, stream, todos, until_state
from tests.redis.servers import RedisServer


def test_shapes_and_commands(open_house: Opener, redis_server: RedisServer) -> None:
    """The shapes of the contract, field by field; the commands say the same in words, and in JSON where asked."""
    house = open_house(adapters=[stream(redis_server)])
    house.vend(ENDPOINT)
    entry = redis_server.client.xadd("orders", {"payload": '{"a": 1}', "tenant": "blue"}).decode()
    todos(house, 1)
    wait_until(lambda: (adapters(house)["orders"]["stored"], adapters(house)["orders"]["lag"]) == (1, 0), what="counted")
    told = adapters(house)["orders"]
    assert set(told) == {
        *("name", "transport", "enabled", "state", "endpoints", "queue", "last_poll_at", "last_message_at", "last_error"),
        *("consecutive_failures", "stored", "duplicates", "quarantined", "lost_at_source", "lag"),
    }
    assert (told["transport"], told["endpoints"], told["queue"], told["lag"]) == ("stream", [ENDPOINT], "work", 0)
    assert told["last_message_at"].endswith("Z")
    assert ready(house)["adapters"]["orders"]["state"] == "running"
    with house.operator() as http:
        (event,) = http.get("/operator/v1/events", params={"endpoint": ENDPOINT, "source": "redis"}).json()["events"]
        assert set(event) == {
            *("id", "endpoint", "source", "family", "trust_mode", "verified", "verify_detail", "disposition", "external_id"),
            *("content_type", "size", "received_at", "todo_ids", "adapter", "queue", "error"),
        }
        assert (event["external_id"], event["size"], event["verify_detail"]) == (
            f"redis:orders:{entry}",
            8,
            "redis acl: default",
        )
        assert event["todo_ids"] == [str(todo_id) for (todo_id,) in rows(house, "select id from todos")]
        one = http.get(f"/operator/v1/events/{event['id']}").json()["event"]
        assert one["headers"] == {"tenant": "blue"}
        assert http.get(f"/operator/v1/events/{event['id']}/raw").content == b'{"a": 1}'
        for path in ("release", "discard"):
            assert http.post(f"/operator/v1/events/{event['id']}/{path}").status_code == 409
        assert http.get("/operator/v1/events", params={"disposition": "lost"}).status_code == 422
        assert http.get("/operator/v1/events", params={"endpoint": "nobody"}).status_code == 404
        assert http.post("/operator/v1/adapters/nobody/enable").status_code == 404
    with house.client() as stranger:
        assert stranger.get("/operator/v1/adapters").status_code == 401
        assert stranger.get(f"/operator/v1/events/{event['id']}/raw").status_code == 401

    assert "orders" in house.command("adapter", "list").stdout
    assert json.loads(house.command("adapter", "list", "--json").stdout)["adapters"][0]["name"] == "orders"
    assert "Adapter orders is disabled" in house.command("adapter", "disable", "orders").stdout
    until_state(house, "orders", "disabled", seconds=4)
    assert house.command("adapter", "enable", "orders").returncode == 0
    until_state(house, "orders", "running", seconds=4)
    missing = house.command("adapter", "enable", "nobody")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "redis:orders" in house.command("event", "list").stdout
    assert "redis acl: default" in house.command("event", "show", event["id"]).stdout
    assert house.command("event", "raw", event["id"]).stdout == '{"a": 1}'
    refused = house.command("event", "discard", event["id"])
    assert refused.returncode == 1
    assert "is stored" in refused.stderr


def test_demo_shows_the_flow_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Adapter, producer and two agents in one terminal; Ctrl-C ends all of it, and no process and no file is left."""
    environ = {**os.environ, "TMPDIR": "/tmp", "PYTHONUNBUFFERED": "1"}  # noqa: S108 - where the embedded server's user may pass
    with (tmp_path / "out").open("wb") as out:
        demo = subprocess.Popen([sys.executable, "-W", "error", str(RUN), "demo"], stdout=out, stderr=out, env=environ)
    said = (tmp_path / "out").read_text
    try:
        wait_until(lambda: said().count(" completes ") >= 5 or demo.poll() is not None, seconds=90, what="work that is done")
        assert demo.poll() is None, said()
        began = time.monotonic()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
        assert time.monotonic() - began < 25
    finally:
        demo.kill()
        demo.wait()
    text = said()
    for who in ("redis ", "house ", "producer ", "adapter ", "agent ada", "agent bob"):
        assert f"\n{who}" in f"\n{text}", text
    assert text.rstrip().endswith("nothing is left of it.")
    left = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and b"switchboard-demo-" in command_line(entry)]
    assert not left
    assert not list(Path("/tmp").glob("switchboard-demo-*"))  # noqa: S108


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
