"""R29: when a house has ended, nothing of it is left: no thread, no connection, no process, no socket.

The fixtures `house` and `open_house` prove it after each house of every test (`no_leftovers` and `no_connections` of
`tests.houses`; a socket that listens needs a process). Here the proof itself is proved, and a house that runs in this very
process, and one that has been used badly and runs on.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import trio

import run as composition
from switchboard import config
from switchboard.last_resort import LastResort
from tests.house import facts
from tests.house.endings import refuses_connections
from tests.house.postmasters import children_of
from tests.houses import House, Opener, no_connections, no_leftovers, toml, wait_until

POOL_SIZE = 4
CONNECTIONS_MAX = POOL_SIZE + 4
"""The pool, and what is kept apart from it for holders and for health."""


def descriptors_of(pid: int | str) -> list[str]:
    """What a process has open: sockets, pipes, files."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(link))  # noqa: PTH115 - a link that names no path
        except FileNotFoundError:  # the one that this listing was read through
            continue
    return sorted(found)


@pytest.mark.parametrize("embedded", [False, True], ids=["external", "embedded"])
async def test_r29_a_house_in_this_process_leaves_nothing(
    open_directory: Path, new_database: Callable[[], str], tmp_path: Path, embedded: bool
) -> None:
    """R29: a house that was opened, used and closed in this process leaves no task (its nursery closed), no thread but the
    idle ones that Trio keeps for later, no descriptor, no child and no session.
    """
    directory = open_directory / f"within-{os.urandom(4).hex()}"
    tables: dict[str, dict[str, object]] = {"server": {"port": 0, "state_dir": str(directory)}}
    database = None if embedded else new_database()
    if database:
        tables["database"] = {"url": database}
    file = tmp_path / "switchboard.toml"
    file.write_text(toml(tables))
    settings = config.load(file, {})
    gc.collect()  # what other tests left for later goes now, and not while this one counts
    threads, descriptors = set(threading.enumerate()), descriptors_of("self")
    closing = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(composition._serve, file, settings, closing, LastResort(grace_seconds=10)))
        address = directory / "address"
        # A file of the house's; nothing else tells that it is open.
        await trio.to_thread.run_sync(partial(wait_until, address.exists, seconds=30))
        url, token = address.read_text().strip(), (directory / "operator-token").read_text().strip()
        await trio.to_thread.run_sync(partial(_use, url, token))
        closing.set()
    gc.collect()
    assert {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")} <= threads
    assert list((Counter(descriptors_of("self")) - Counter(descriptors)).elements()) == []
    assert [pid for pid in children_of(os.getpid()) if str(directory) in _words(pid)] == []
    assert refuses_connections(url)
    if database:
        no_connections([database])


def _use(url: str, token: str) -> None:
    """One of everything."""
    operator, agent = (httpx.Client(base_url=url, trust_env=False, headers={"Authorization": "Bearer " + token}) for _ in "ab")
    with operator, agent:
        vended = operator.post("/operator/v1/endpoints", json={"name": "one"}).json()
        agent.headers["Authorization"] = f"Bearer {vended['credential']}"
        pushed = agent.post("/v1/todos", json={"queue": "work"}).json()["todo"]
        (claimed,) = agent.post("/v1/claims", json={}).json()["todos"]
        assert claimed["id"] == pushed["id"]
        done = agent.post(f"/v1/todos/{pushed['id']}/complete", json={"lease_token": claimed["lease_token"]})
        assert done.status_code == 200


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_r29_callers_that_vanish_leave_nothing_in_the_house(open_house: Opener) -> None:
    """R29: after hundreds of callers who hung up at every point of a request, and waiting claims among them, the house holds
    no socket of theirs, no more sessions than its pool has, and no more threads than sessions need.
    """
    house = open_house(settings={"database": {"pool_size": POOL_SIZE}})
    agent, database = house.vend(), str(house.database)
    agent.push("warm")
    agent.claim(queue="warm")
    agent.http.close()
    pid = house.process.pid
    at = urlsplit(house.url)
    body = b'{"queue": "none", "wait_seconds": 60}'
    head = (
        f"POST /v1/claims HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer {agent.credential}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    whole = head + body
    for number in range(200):
        with socket.create_connection((at.hostname or "", at.port or 0), timeout=10) as line:
            line.sendall(whole[: len(whole) * (number % 5) // 4])
    operator = house.operator()

    def of_strangers() -> list[str]:
        operator.get("/healthz")
        lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        port = f":{at.port:04X}"
        # Established or half closed, seen from the house's side; its listening socket is neither, and one line is ours.
        return [line for line in lines if line.split()[1].endswith(port) and line.split()[3] in ("01", "08")]

    wait_until(lambda: len(of_strangers()) <= 1, seconds=10, what="the end of their sockets")
    sockets = [name for name in descriptors_of(pid) if name.startswith("socket:")]
    # Those of Trio's own wake-up, the listener, this client and the database's; generously.
    assert len(sockets) <= CONNECTIONS_MAX + 8, sockets
    assert facts.sessions(database) <= CONNECTIONS_MAX
    # Trio keeps a thread for ten seconds after its last use; the bound is on how many there can be at all.
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) <= CONNECTIONS_MAX + 8


def test_r29_the_proof_finds_what_is_left(open_house: Opener, database: str, open_directory: Path) -> None:
    """R29: the check that follows each house test does see a process and a session that are left behind."""
    directory = open_directory / f"left-{os.urandom(4).hex()}"
    with subprocess.Popen(["tail", "-f", f"{directory}/none", "/dev/null"], stderr=subprocess.DEVNULL) as left:
        try:
            wait_until(lambda: str(directory) in _words(left.pid), what="the command line of the process")
            with pytest.raises(AssertionError, match=str(directory)):
                no_leftovers([directory])
        finally:
            left.kill()  # else leaving this block would wait for it for ever
    no_leftovers([directory])
    with psycopg.connect(database, application_name="switchboard"), pytest.raises(AssertionError, match="session"):
        no_connections([database], seconds=0.1)
    no_connections([database])


def test_r29_the_embedded_server_is_gone_with_its_house(open_house: Opener) -> None:
    """R29: an embedded house that ends in order takes every process of its server along, and its socket's file."""
    house: House = open_house(embedded=True)
    state = house.directory / "state"
    assert list(state.glob("postgres-*/socket/.s.PGSQL.*"))
    assert house.stop() == 0
    no_leftovers([house.directory])
    assert not list(state.glob("postgres-*/socket/.s.PGSQL.*"))
