"""Real houses for tests: `run.py serve` as a process, with a configuration of its own, to be used, stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import httpx
import psycopg

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "run.py"
OPEN_SECONDS_MAX = 30.0
GENERAL_LANE = {"Connection": "keep-alive, te", "TE": "trailers"}
"""Headers of a good request that the express lane leaves to the general one."""
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""No house speaks TLS; one empty context saves every client a tenth of a second of reading certificates."""


@attrs.frozen(kw_only=True)
class Agent:
    """An endpoint, and a client that carries its credential."""

    name: str
    id: str
    credential: str = attrs.field(repr=False)
    http: httpx.Client = attrs.field(repr=False)
    lane_headers: Mapping[str, str] = attrs.field(factory=dict)

    def push(self, queue: str = "work", **fields: Any) -> dict[str, Any]:
        """Makes a todo; returns it."""
        reply = self.http.post("/v1/todos", json={"queue": queue, **fields})
        assert reply.status_code in (200, 201), reply.text
        todo: dict[str, Any] = reply.json()["todo"]
        return todo

    def claim(self, **fields: Any) -> list[dict[str, Any]]:
        """Claims; returns the todos."""
        reply = self.http.post("/v1/claims", json=fields)
        assert reply.status_code == 200, reply.text
        todos: list[dict[str, Any]] = reply.json()["todos"]
        return todos

    def verb(self, verb: str, todo: Mapping[str, Any] | str, **fields: Any) -> httpx.Response:
        """One of a todo's verbs; with a claimed todo, its lease token goes along."""
        if isinstance(todo, str):
            return self.http.post(f"/v1/todos/{todo}/{verb}", json=fields)
        if todo.get("lease_token") and "lease_token" not in fields and verb not in ("claim", "retry"):
            fields["lease_token"] = todo["lease_token"]
        return self.http.post(f"/v1/todos/{todo['id']}/{verb}", json=fields)

    def get(self, todo: Mapping[str, Any]) -> dict[str, Any]:
        """The todo as it is now, with its history."""
        reply = self.http.get(f"/v1/todos/{todo['id']}")
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()["todo"]
        return found


@attrs.define(kw_only=True)
class House:
    """One running house."""

    process: subprocess.Popen[bytes]
    directory: Path
    config: Path
    database: str | None = attrs.field(repr=False)
    url: str = ""
    lane_headers: Mapping[str, str] = attrs.field(factory=dict)
    """What its clients send so that their requests take one lane and not the other."""
    _clients: list[httpx.Client] = attrs.field(factory=list, repr=False)

    @property
    def token(self) -> str:
        """The operator's token."""
        return (self.directory / "state" / "operator-token").read_text().strip()

    def client(self, credential: str | None = None, *, timeout_seconds: float = 30.0) -> httpx.Client:
        """An HTTP client for this house, with a credential if one is given."""
        headers = dict(self.lane_headers) | ({"Authorization": f"Bearer {credential}"} if credential else {})
        client = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_seconds, trust_env=False, verify=PLAIN)
        self._clients.append(client)
        return client

    def operator(self) -> httpx.Client:
        """A client with the operator's token."""
        return self.client(self.token)

    def vend(self, name: str | None = None, queues: Sequence[str] | None = None) -> Agent:
        """A new endpoint, with its client."""
        body: dict[str, Any] = {"name": name or f"agent-{uuid4().hex[:12]}"}
        if queues is not None:
            body["queues"] = list(queues)
        with httpx.Client(base_url=self.url, trust_env=False, verify=PLAIN) as http:
            reply = http.post("/operator/v1/endpoints", json=body, headers={"Authorization": f"Bearer {self.token}"})
        assert reply.status_code == 201, reply.text
        made = reply.json()
        return Agent(
            name=made["endpoint"]["name"],
            id=made["endpoint"]["id"],
            credential=made["credential"],
            http=self.client(made["credential"]),
            lane_headers=self.lane_headers,
        )

    def command(self, *words: str, stdin: str | None = None, seconds: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Runs one of the operator's commands against this house."""
        return run(*words, "--config", str(self.config), stdin=stdin, seconds=seconds)

    def ready(self) -> bool:
        """Whether it says that it is ready."""
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False, timeout=5, verify=PLAIN).status_code == 200
        except httpx.TransportError:
            return False

    def log(self) -> str:
        """What it has written to its standard error so far."""
        return (self.directory / "stderr").read_text()

    def said(self) -> str:
        """What it has written to its standard output so far."""
        return (self.directory / "stdout").read_text()

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM, and its exit code."""
        self.signal()
        return self.process.wait(seconds)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Ends it, however it is."""
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.signal()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Opener:
    """Opens houses below one directory, and closes them all."""

    def __init__(self, below: Path, new_database: Callable[[], str]) -> None:
        self._below = below
        self._new_database = new_database
        self._houses: list[House] = []
        self.directories: list[Path] = []

    def __call__(
        self,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        adapters: Sequence[Mapping[str, Any]] = (),
        database: str | None = None,
        embedded: bool = False,
        environ: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> House:
        """A new house: on a database of its own, on the one given, or with an embedded server."""
        directory = self._below / f"house-{uuid4().hex[:8]}"
        directory.mkdir()
        self.directories.append(directory)
        tables: dict[str, dict[str, Any]] = {"server": {"port": 0, "state_dir": str(directory / "state")}}
        if not embedded:
            database = database or self._new_database()
            tables["database"] = {"url": database}
        for table, values in (settings or {}).items():
            tables.setdefault(table, {}).update(values)
        config = directory / "switchboard.toml"
        config.write_text(toml(tables) + "".join(f"\n[[adapters]]\n{toml_lines(adapter)}" for adapter in adapters))
        house = House(process=_spawn(config, directory, environ), directory=directory, config=config, database=database)
        self._houses.append(house)
        if wait:
            wait_open(house)
        return house

    def again(self, house: House, *, environ: Mapping[str, str] | None = None, wait: bool = True) -> House:
        """The same house, opened again after it was stopped or killed: same configuration, same state, same database."""
        (house.directory / "state" / "address").unlink(missing_ok=True)
        process = _spawn(house.config, house.directory, environ)
        reopened = House(process=process, directory=house.directory, config=house.config, database=house.database)
        self._houses.append(reopened)
        if wait:
            wait_open(reopened)
        return reopened

    def close(self) -> None:
        """Closes every house that was opened here, and asserts that no session of theirs is left (R29)."""
        for house in self._houses:
            house.close()
        no_connections(sorted({house.database for house in self._houses if house.database}))


def wait_open(house: House) -> None:
    """Waits until the house has written its address down and answers."""
    deadline = time.monotonic() + OPEN_SECONDS_MAX
    address = house.directory / "state" / "address"
    while time.monotonic() < deadline:
        assert house.process.poll() is None, f"the house ended with {house.process.returncode}: {house.log()}"
        if address.exists():
            house.url = address.read_text().strip()
            if house.ready():
                return
        time.sleep(0.02)  # a process that opens has no event that another one could wait for
    raise AssertionError(f"the house did not open: {house.log()}")


def run(
    *words: str, stdin: str | None = None, seconds: float = 30.0, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `run.py` with these words to its end."""
    return subprocess.run(
        [sys.executable, str(RUN), *words],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env=_environ(environ),
    )


def toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """A TOML text of plain tables; JSON's strings, numbers, booleans and lists are TOML's too."""
    return "\n".join(f"[{table}]\n{toml_lines(values)}" for table, values in tables.items())


def toml_lines(values: Mapping[str, Any]) -> str:
    """The lines of one plain table."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def wait_until(true: Callable[[], bool], *, seconds: float = 10.0, what: str = "it") -> None:
    """Waits for something that another process does, and that has no event to wait for; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        time.sleep(0.02)


def no_leftovers(directories: Sequence[Path]) -> None:
    """Asserts that no process of these houses is left (R29): nothing runs whose command line names their directories."""
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:
                continue
            if any(str(directory) in words for directory in directories):
                left.append(f"{entry.name}: {words}")
    assert not left, left


def no_connections(databases: Sequence[str], *, seconds: float = 10.0) -> None:
    """Asserts that no session of a switchboard is left on these databases (R29); a server that is gone has none.

    A server notices that a killed client is gone at its next word with it: hence the wait.
    """
    statement = (
        "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'switchboard%'"
    )
    for database in databases:
        try:
            with psycopg.connect(database, autocommit=True, application_name="test-leftovers") as connection:
                wait_until(
                    lambda: connection.execute(statement).fetchone() == (0,),
                    seconds=seconds,
                    what="the end of its last session",
                )
        except psycopg.OperationalError:
            continue


def _spawn(config: Path, directory: Path, environ: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    with (directory / "stdout").open("ab") as stdout, (directory / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-W", "error", str(RUN), "serve", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=_environ(environ),
        )


def _environ(more: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHBOARD_", "STATE_DIRECTORY"))}
    return kept | dict(more or {})
