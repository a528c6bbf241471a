"""The database goes away, in every way it can: meanwhile 503 and nothing worse, and afterwards everything by itself.

Acceptance 5; C41, C42. One house lives through all of it, on a server that these tests may stop, freeze and kill.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import attrs
import httpx
import pytest
from psycopg.conninfo import make_conninfo

from tests.house import facts
from tests.house.aliveness import require_everybody_alive
from tests.house.load import Load
from tests.house.postmasters import OwnServer, conninfo_of, freeze, own_server, postmaster_of, thaw
from tests.houses import Agent, House, Opener, wait_until
from tests.http.pushing import hook

SETTINGS: dict[str, dict[str, Any]] = {
    "server": {"shutdown_grace_seconds": 4},
    "queue": {"reap_interval_seconds": 0.3, "retry_interval_seconds": 0.3},
}
OUTAGE_SECONDS = [4.0, pytest.param(20.0, marks=pytest.mark.long)]
NOTICED_SECONDS_MAX = 6.0
"""The pulse looks each second, and takes 3 s of silence for an answer."""
RECOVERED_SECONDS_MAX = 10.0
HEALTH_SECONDS_MAX = 2.0
"""/healthz asks nobody; the slack is the machine's."""
ANSWER_SECONDS_MAX = 15.0
"""No caller waits longer for its 503: the ledger's 10 s behind a credential's look-up."""


@attrs.frozen(kw_only=True)
class Scene:
    """A house, an agent in it, and the server below."""

    server: OwnServer
    house: House
    agent: Agent
    database: str = attrs.field(repr=False)

    def load(self) -> Load:
        """Load that is about to be disturbed."""
        return Load(url=self.house.url, credential=self.agent.credential)


@pytest.fixture(scope="module")
def scene(open_directory: Path, new_database: Callable[[], str]) -> Iterator[Scene]:
    """One house for the whole module: that it serves the next test is a part of what the one before has proved."""
    with own_server(open_directory) as server:
        opener = Opener(open_directory, new_database)
        database = server.database()
        house = opener(database=database, settings=SETTINGS)
        yield Scene(server=server, house=house, agent=house.vend(), database=database)
        opener.close()


def flowing(load: Load, calls: int = 20, seconds: float = RECOVERED_SECONDS_MAX) -> None:
    """Waits until so many more calls were acknowledged."""
    enough = load.acknowledged() + calls
    wait_until(lambda: load.acknowledged() >= enough or bool(load.wrong), seconds=seconds, what=f"load {load.statuses}")


def database_seen(house: House) -> dict[str, Any]:
    """What `/readyz` says of the database."""
    with house.client() as client:
        seen: dict[str, Any] = client.get("/readyz").json()["database"]
    return seen


def require_told(house: House, agent: Agent, *, until: Callable[[], bool], reads: bool = True) -> None:
    """While the outage lasts: /healthz 200, /readyz 503, each kind of call 503 with Retry-After, all of it in bounded time."""
    wait_until(lambda: not database_seen(house)["up"], seconds=NOTICED_SECONDS_MAX, what="/readyz 503")
    some = "018f0000-0000-7000-8000-000000000000"
    calls: list[tuple[httpx.Client, str, str, object]] = [
        (agent.http, "POST", "/v1/todos", {"queue": "told"}),
        (agent.http, "POST", "/v1/claims", {"queue": "told"}),
        (house.operator(), "POST", "/operator/v1/endpoints", {"name": f"outage-{time.monotonic_ns()}"}),
    ]
    if reads:
        calls += [
            (agent.http, "GET", "/v1/todos", None),
            (agent.http, "POST", f"/v1/todos/{some}/heartbeat", {}),
            (house.operator(), "GET", "/operator/v1/todos", None),
        ]
    wrong: list[str] = []

    def ask(client: httpx.Client, method: str, path: str, body: object) -> None:
        began = time.monotonic()
        reply = client.request(method, path, json=body)
        told = reply.status_code == 503 and reply.headers.get("Retry-After", "").isdigit()
        if not told or reply.json()["code"] != "unavailable" or time.monotonic() - began > ANSWER_SECONDS_MAX:
            wrong.append(f"{method} {path} after {time.monotonic() - began:.1f} s: {reply.status_code} {reply.text}")

    asking = [threading.Thread(target=ask, args=call) for call in calls]
    for thread in asking:
        thread.start()
    health = house.client(timeout_seconds=HEALTH_SECONDS_MAX)
    while not until():
        assert health.get("/healthz").status_code == 200
        ready = health.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["database"]["up"] is False
        time.sleep(0.1)  # the outage has a length; within it these are the only events
    for thread in asking:
        thread.join()
    assert not wrong, wrong


def lasting(seconds: float) -> Callable[[], bool]:
    """True once so much time has passed."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def require_recovered(scene: Scene, load: Load) -> None:
    """Nothing that was acknowledged is lost, nobody heard anything but success and 503, and every actor is alive."""
    load.require_clean()
    facts.require_kept(scene.database, created=load.created.items(), completed=load.completed.items())
    require_everybody_alive(scene.house, scene.agent, scene.database)
    assert scene.house.process.poll() is None


@pytest.mark.parametrize("rounds", [8, pytest.param(100, marks=pytest.mark.long)])
def test_c41_backends_terminated_under_load(scene: Scene, rounds: int) -> None:
    """C41, acceptance 5: pg_terminate_backend on all of the house's sessions, again and again under load: 503 or success,
    no 500, nothing lost; each actor alive afterwards.
    """
    terminate = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where datname = current_database() and application_name like 'switchboard%'"
    )
    with scene.load() as load:
        for _ in range(rounds):
            flowing(load, 10)
            assert facts.one(scene.database, terminate) >= 1
        flowing(load)
    require_recovered(scene, load)


@pytest.mark.parametrize("seconds", OUTAGE_SECONDS)
def test_c41_postgres_stopped_and_started(scene: Scene, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    """C41, acceptance 5: Postgres is stopped under load and started later. Meanwhile 503 with Retry-After, /healthz 200,
    /readyz 503; afterwards everything goes on within seconds, unaided.
    """
    with scene.load() as load:
        flowing(load)
        began = time.monotonic()
        scene.server.stop()
        require_told(scene.house, scene.agent, until=lasting(seconds - (time.monotonic() - began)))
        scene.server.start()
        back = time.monotonic()
        flowing(load)
        took = time.monotonic() - back
    require_recovered(scene, load)
    assert load.statuses[503] > 0
    with capsys.disabled():
        print(f"\n  stopped for {back - began:.1f} s: {load.statuses[503]} times 503, work again {took:.2f} s after its start")


@pytest.mark.parametrize("seconds", OUTAGE_SECONDS)
def test_c41_postgres_frozen(scene: Scene, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    """C41: Postgres takes connections and says nothing (SIGSTOP): no caller waits without end, health answers at once, and
    when it wakes up everything goes on, what it had taken before included.
    """
    with scene.load() as load:
        flowing(load)
        frozen = freeze(scene.server.pid)
        try:
            began = time.monotonic()
            require_told(scene.house, scene.agent, until=lasting(seconds))
        finally:
            thaw(frozen)
        back = time.monotonic()
        flowing(load, seconds=ANSWER_SECONDS_MAX)
        took = time.monotonic() - back
    require_recovered(scene, load)
    with capsys.disabled():
        print(f"\n  frozen for {back - began:.1f} s: {load.statuses[503]} times 503, work again {took:.2f} s after its waking")


@pytest.mark.parametrize("seconds", [2.0, pytest.param(20.0, marks=pytest.mark.long)])
def test_c42_read_only_and_back(scene: Scene, seconds: float) -> None:
    """C42, acceptance 5: the server takes no writes for a while, as after a failover. Every call that writes is 503 with
    Retry-After, a claim included; health says why; nobody needs to restart anything.
    """
    with scene.load() as load:
        flowing(load)
        scene.server.read_only(True)
        try:
            wait_until(lambda: not database_seen(scene.house)["up"], seconds=NOTICED_SECONDS_MAX, what="/readyz 503")
            assert database_seen(scene.house)["last_error"] == "it is read-only"
            before = load.acknowledged()
            require_told(scene.house, scene.agent, until=lasting(seconds), reads=False)
            assert load.acknowledged() == before  # no write can have been acknowledged
        finally:
            scene.server.read_only(False)
        flowing(load)
    require_recovered(scene, load)
    assert load.statuses[503] > 0


def test_embedded_postmaster_killed(open_house: Opener) -> None:
    """Acceptance 5: kill -9 of the embedded server's main process under load: the house starts it again by itself, nothing
    that was acknowledged is lost, and each actor is alive.
    """
    house = open_house(embedded=True, settings=SETTINGS)
    agent = house.vend()
    database, pid = conninfo_of(house), postmaster_of(house)
    with Load(url=house.url, credential=agent.credential) as load:
        flowing(load)
        os.kill(pid, signal.SIGKILL)
        flowing(load, 40, seconds=20)
    scene = Scene(server=OwnServer(house.directory), house=house, agent=agent, database=database)
    require_recovered(scene, load)
    assert postmaster_of(house) != pid
    assert house.client().get("/readyz").json()["actors"]["postgres"]["running"]
    assert house.stop() == 0


DISK_BYTES = 32 * 1_048_576
LEFT_BYTES = 2 * 1_048_576
PAYLOAD_BYTES = 131_072


@pytest.fixture
def small_disk(scene: Scene) -> tuple[str, Path]:
    """A fresh database on a disk of its own, to be filled by a file. Both stay as long as their server does."""
    disk = scene.server.mount(DISK_BYTES)
    if disk is None:
        pytest.skip("no tmpfs can be mounted here")
    name = f"small_{uuid4().hex[:8]}"
    facts.ask(scene.server.conninfo, f"create tablespace {name} location '{disk}'")
    facts.ask(scene.server.conninfo, f"create database {name} tablespace {name}")
    return make_conninfo(scene.server.conninfo, dbname=name), disk / "filler"


def test_c60_disk_full(small_disk: tuple[str, Path], open_house: Opener) -> None:
    """C60: the database cannot extend its files: creates are 503 with Retry-After and never 2xx, every 2xx has its row, the
    house stays, and with room on the disk it goes on by itself.
    """
    database, filler = small_disk
    house = open_house(database=database, settings=SETTINGS)
    agent = house.vend()
    webhook = hook(house, "token", agent, queue="pushed")
    free = os.statvfs(filler.parent)
    filler.write_bytes(bytes(free.f_bavail * free.f_frsize - LEFT_BYTES))
    statuses: list[int] = []
    created: list[tuple[str, str]] = []
    details: list[str] = []

    def create() -> None:
        # Random, or it would be compressed to nothing.
        fields = {"queue": "big", "idempotency_key": uuid4().hex, "payload": os.urandom(PAYLOAD_BYTES // 2).hex()}
        reply = agent.http.post("/v1/todos", json=fields)
        statuses.append(reply.status_code)
        if reply.status_code == 201:
            created.append((fields["idempotency_key"], reply.json()["todo"]["id"]))
        else:
            assert reply.status_code == 503, reply.text
            assert reply.headers["Retry-After"].isdigit()
            details.append(reply.json()["detail"])

    for _ in range(4 * LEFT_BYTES // PAYLOAD_BYTES):
        create()
    assert statuses.count(503) > LEFT_BYTES // PAYLOAD_BYTES
    assert statuses[-1] == 503
    pushed = [webhook.push(os.urandom(PAYLOAD_BYTES)).status_code for _ in range(4)]
    assert pushed[-1] == 503  # so that its sender tries again
    assert house.client().get("/healthz").status_code == 200
    assert "The database's disk is full." in details
    filler.unlink()  # before anybody looks: a full disk may refuse new sessions, too
    facts.require_kept(database, created=created, completed=())
    assert facts.one(database, "select count(*) from todos where queue = 'big'") == len(created)
    assert facts.one(database, "select count(*) from todos where queue = 'pushed'") == pushed.count(202)
    statuses.clear()
    create()
    assert statuses == [201]
    require_everybody_alive(house, agent, database)


def test_an_answer_that_is_faster_than_the_body_says_that_the_connection_closes(scene: Scene) -> None:
    """C41: a 401 or 503 that needs no body to be known comes before it; the connection cannot be used again then, and the
    answer says so, or the client's next request would vanish without a word. A body that was there costs no connection.
    """
    at = urlsplit(scene.house.url)
    body = b'{"queue": "told"}'
    head = (
        f"POST /v1/todos HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer sbk_none\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    for first, closes in ((head, True), (head + body, False)):
        with socket.create_connection((at.hostname or "", at.port or 0), timeout=10) as line:
            line.sendall(first)
            reply = http.client.HTTPResponse(line)
            reply.begin()
            assert reply.status == 401
            reply.read()
            assert (reply.getheader("Connection") == "close") is closes
            if closes:
                assert line.recv(1) == b""
