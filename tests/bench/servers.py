"""HTTP servers under test, each a process of its own that is gone afterwards."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from tests.bench.ground import CREDENTIAL, Ground
from tests.bench.load import Load, Served, Work, run_load
from tests.bench.venvs import python_with
from tests.houses import ROOT
from tests.redis.servers import free_port

OPEN_SECONDS_MAX: Final = 30.0
END_SECONDS_MAX: Final = 10.0
FASTAPI_PACKAGES: Final = ("fastapi", "uvicorn[standard]", "asyncpg")


@contextmanager
def process(words: Sequence[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens on this port."""
    with log.open("ab") as written:
        running = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=written, stderr=written, cwd=ROOT)
    try:
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        while not listens(port):
            if running.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{words[2]} did not open: {log.read_text()[-2000:]}")
            time.sleep(0.02)  # another process's start has no event to wait for
        yield running
    finally:
        running.terminate()
        try:
            running.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def bare_quart(ground: Ground) -> Iterator[int]:
    """The floor; its port."""
    port = free_port()
    words = [sys.executable, "-m", "tests.bench.rivals.bare_quart", str(port)]
    with process(words, port, ground.directory / "bare_quart.log"):
        yield port


@contextmanager
def fastapi(ground: Ground) -> Iterator[int]:
    """The service written by hand, on a database of its own; its port. Raises NotInstalled."""
    python = python_with("fastapi", FASTAPI_PACKAGES)
    port = free_port()
    database = ground.empty_database()
    given = conninfo_to_dict(database)
    wanted = {"host": given["host"], "user": given["user"], "password": given["password"], "database": given["dbname"]}
    words = [str(python), "-m", "tests.bench.rivals.fastapi_service", str(port), json.dumps(wanted)]
    try:
        with process(words, port, ground.directory / "fastapi.log"):
            yield port
    finally:
        ground.drop(database)


@contextmanager
def house(ground: Ground) -> Iterator[int]:
    """A house on a database of its own; its port."""
    with ground.fresh() as database:
        opened = ground.house(database)
        try:
            yield int(urlsplit(opened.url).port or 0)
        finally:
            opened.close()


def load_on(
    port: int, work: Work, *, connections: int, batch: int = 1, seconds: float = 4.0, per_second: float | None = None
) -> Served:
    """What the server there answers; raises where it refuses anything."""
    served = run_load(
        Load(
            host="127.0.0.1",
            port=port,
            credential=CREDENTIAL,
            work=work,
            connections=connections,
            batch=batch,
            seconds=seconds,
            per_second=per_second,
        )
    )
    if served.refused:
        raise RuntimeError(f"{served.refused} requests of {work} were refused")
    return served
