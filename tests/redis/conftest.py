"""A Redis-compatible server for each test that wants one, and houses that read from it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.redis.servers import RedisServer, free_port

StartRedis = Callable[..., RedisServer]


@pytest.fixture
def start_redis() -> Iterator[StartRedis]:
    """Starts servers; all are gone when the test ends."""
    below = Path(tempfile.mkdtemp(prefix="switchboard-redis-"))
    servers: list[RedisServer] = []

    def start(*extra: str) -> RedisServer:
        directory = below / str(len(servers))
        directory.mkdir()
        servers.append(RedisServer(directory=directory, port=free_port(), extra=extra))
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()
    shutil.rmtree(below)


@pytest.fixture
def redis_server(start_redis: StartRedis) -> RedisServer:
    """One server."""
    return start_redis()
