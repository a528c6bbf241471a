"""Redis-compatible servers for the tests that want them, and houses that read from them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.redis.servers import RedisServer, free_port

StartRedis = Callable[..., RedisServer]


@contextlib.contextmanager
def redis_servers() -> Iterator[StartRedis]:
    """Starts servers; all are gone at the end."""
    below = Path(tempfile.mkdtemp(prefix="switchboard-redis-"))
    servers: list[RedisServer] = []

    def start(*extra: str) -> RedisServer:
        directory = below / str(len(servers))
        directory.mkdir()
        servers.append(RedisServer(directory=directory, port=free_port(), extra=extra))
        return servers[-1].start()

    try:
        yield start
    finally:
        for server in servers:
            server.close()
        shutil.rmtree(below)


@pytest.fixture
def start_redis() -> Iterator[StartRedis]:
    """Starts servers; all are gone when the test ends."""
    with redis_servers() as start:
        yield start


@pytest.fixture
def redis_server(start_redis: StartRedis) -> RedisServer:
    """One server of this test's own."""
    return start_redis()


@pytest.fixture(scope="module")
def shared_redis() -> Iterator[RedisServer]:
    """One server for all the tests of a module that do it no harm."""
    with redis_servers() as start:
        yield start()
