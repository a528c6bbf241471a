"""Agents behind nginx with its default settings: rings arrive at once, quiet streams live on, whoever leaves is forgotten."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import httpx
import pytest
import trio

from tests.houses import PLAIN, House, Opener, no_leftovers, wait_until
from tests.http.asking import CALM
from tests.http.listening import attached, push
from tests.redis.servers import free_port

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SOON_SECONDS = 2.0

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed: Debian's package is enough")

CONFIGURATION = """
{user}
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {directory}/bodies;
    proxy_temp_path {directory}/proxied;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {upstream}; }}
    }}
}}
"""
"""Nothing but where it may write and what it stands before: HTTP/1.0 to the house, answers buffered, 60 s of patience."""


@attrs.frozen(kw_only=True)
class Nginx:
    """A proxy that runs."""

    process: subprocess.Popen[bytes]
    url: str

    def connections(self, house: House) -> int:
        """How many open sockets its worker has to this house."""
        (worker,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        mine = set()
        for descriptor in Path(f"/proc/{worker}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since
                mine.add(str(descriptor.readlink()))
        port = f":{urlsplit(house.url).port:04X}"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(words[2].endswith(port) and f"socket:[{words[9]}]" in mine for words in lines)


@pytest.fixture
def house(open_directory: Path, new_database: Callable[[], str]) -> Iterator[House]:
    """A house without sweeps."""
    opener = Opener(open_directory, new_database)
    yield opener(settings=CALM)
    opener.close()
    no_leftovers(opener.directories)


@pytest.fixture
def nginx(house: House) -> Iterator[Nginx]:
    """A proxy before it."""
    assert NGINX is not None
    directory = house.directory / "nginx"
    directory.mkdir()
    port = free_port()
    configuration = directory / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    configuration.write_text(CONFIGURATION.format(user=user, directory=directory, port=port, upstream=house.url))
    with (directory / "stderr").open("wb") as stderr:
        process = subprocess.Popen([NGINX, "-p", str(directory), "-c", str(configuration)], stderr=stderr)
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: _answers(url), what=f"nginx, which says {(directory / 'stderr').read_text()!r},")
    yield Nginx(process=process, url=url)
    process.terminate()
    assert process.wait(10) == 0


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False, verify=PLAIN).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("quiet_seconds", [0, pytest.param(125, marks=pytest.mark.long)])
async def test_c55_a_stream_through_nginx(house: House, nginx: Nginx, quiet_seconds: int) -> None:
    """C55: what waits is heard first, a ring at once, after two quiet minutes too; a client that leaves frees its sockets;
    at shutdown the end is a clean one.
    """
    agent = house.vend()
    waiting = await push(agent)
    async with attached(nginx.url, agent) as leaves:
        await leaves.next_ids(1)
        assert nginx.connections(house) == 1
    await trio.to_thread.run_sync(partial(wait_until, lambda: nginx.connections(house) == 0, what="freed sockets"))
    async with attached(nginx.url, agent) as stream:
        assert await stream.next_ids(1) == [waiting]
        await trio.sleep(quiet_seconds)
        assert not stream.ended.is_set()
        assert stream.comments >= quiet_seconds // 16
        began = trio.current_time()
        todo = await push(agent)
        await stream.hears(todo)
        assert trio.current_time() - began < SOON_SECONDS
        house.signal()
        with trio.fail_after(10):
            await stream.ended.wait()
        assert not stream.cut


async def test_r15_a_waiting_claim_through_nginx(house: House, nginx: Nginx) -> None:
    """R25, R15: it is woken at once; whoever hangs up while it waits is forgotten, and what comes then is for others."""
    agent = house.vend()
    headers = {"Authorization": f"Bearer {agent.credential}"}
    async with httpx.AsyncClient(base_url=nginx.url, headers=headers, trust_env=False, verify=PLAIN, timeout=30) as http:

        async def claim() -> list[str]:
            reply = await http.post("/v1/claims", json={"wait_seconds": 20})
            assert reply.status_code == 200
            return [todo["id"] for todo in reply.json()["todos"]]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(claim)
            await _until(lambda: nginx.connections(house) == 1)
            nursery.cancel_scope.cancel()
        await _until(lambda: nginx.connections(house) == 0)
        todo = await push(agent)
        assert await claim() == [todo]

        woken: list[tuple[list[str], float]] = []

        async def wait() -> None:
            woken.append((await claim(), trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await _until(lambda: nginx.connections(house) == 1)
            began = trio.current_time()
            another = await push(agent)
        ((ids, at),) = woken
        assert ids == [another]
        assert at - began < SOON_SECONDS


async def _until(true: Callable[[], bool]) -> None:
    await trio.to_thread.run_sync(partial(wait_until, true, what="nginx's connection"))
