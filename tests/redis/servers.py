"""Real Redis-compatible servers for tests: the wheel's by default, any other through SWITCHBOARD_TEST_REDIS_SERVER."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import redis

from switchboard.demo import redis_binary

SERVER_VARIABLE = "SWITCHBOARD_TEST_REDIS_SERVER"
UP_SECONDS_MAX = 15.0


def binary() -> str:
    """The server under test."""
    return os.environ.get(SERVER_VARIABLE) or str(redis_binary())


@attrs.define(kw_only=True)
class RedisServer:
    """One server in a directory of its own, with an append-only file, to be killed, stopped and started again."""

    directory: Path
    port: int
    extra: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    _client: Any = attrs.field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The way to it, without credentials."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> Any:
        """A client of the tests' own, with bytes in and out."""
        if self._client is None:
            self._client = redis.Redis(host="127.0.0.1", port=self.port, protocol=2, socket_timeout=30)
        return self._client

    def start(self) -> RedisServer:
        """Starts it and waits until it answers."""
        with (self.directory / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    binary(),
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)),
                    *("--appendonly", "yes", "--appendfsync", "always", "--save", "", *self.extra),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + UP_SECONDS_MAX
        while True:
            try:
                with redis.Redis(host="127.0.0.1", port=self.port, protocol=2) as probe:
                    probe.execute_command("PING")
                    return self
            except redis.ResponseError:
                return self  # it answers, if only to say that it knows nobody
            except redis.ConnectionError:
                assert time.monotonic() < deadline, (self.directory / "redis.log").read_text()
                assert self.process.poll() is None, (self.directory / "redis.log").read_text()
                time.sleep(0.02)  # another process's start has no event to wait for

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends it; its data stays."""
        self._drop_client()
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def close(self) -> None:
        """Ends it for good."""
        self.stop(signal.SIGKILL)

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
