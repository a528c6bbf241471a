"""For machines: is it alive, is it ready, and what does it speak."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct

from switchboard import VERSION
from switchboard.http import requests
from switchboard.http.call import Call, Reply
from switchboard.supervisor import ActorHealth
from switchboard.tally import Tally


class HealthReply(Struct, frozen=True, kw_only=True):
    """Alive. No database was asked."""

    status: str
    version: str


class DatabaseOut(Struct, frozen=True, kw_only=True):
    """The database as the last look, at most a second or so ago, found it."""

    up: bool
    server: str | None
    last_error: str | None


class ActorOut(Struct, frozen=True, kw_only=True):
    """One actor of the house."""

    running: bool
    restarts: int
    last_error: str | None


class AdapterHealthOut(Struct, frozen=True, kw_only=True):
    """One pull adapter, as this process sees it."""

    state: str
    last_error: str | None
    consecutive_failures: int


class ReadyReply(Struct, frozen=True, kw_only=True):
    """`ready`, `degraded` (200: something that not everybody needs is broken) or `unavailable` (503)."""

    status: str
    process: int
    database: DatabaseOut
    actors: dict[str, ActorOut]
    adapters: dict[str, AdapterHealthOut]


class Beat(Protocol):
    """The database as somebody last saw it."""

    @property
    def up(self) -> bool:
        """Whether it serves, writes included."""
        ...

    @property
    def server(self) -> str | None:
        """Its version, once it was seen."""
        ...

    @property
    def last_error(self) -> str | None:
        """Why it does not serve."""
        ...


class Machine:
    """Handlers that ask no credential."""

    def __init__(
        self, *, database: Callable[[], Beat], actors: Mapping[str, ActorHealth], adapters: Mapping[str, Tally]
    ) -> None:
        self._database = database
        self._actors = actors
        self._adapters = adapters
        self.openapi = b""

    async def healthz(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:  # noqa: ARG002 - nothing to ask
        """`GET /healthz`."""
        return Reply(content=HealthReply(status="ok", version=VERSION))

    async def readyz(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:  # noqa: ARG002 - nothing to ask
        """`GET /readyz`: 503 when the database is away or an actor that everyone needs is down.

        A broken adapter makes it `degraded`, with 200: the rest of the house runs.
        """
        beat = self._database()
        database = DatabaseOut(up=beat.up, server=beat.server, last_error=beat.last_error)
        down = [name for name, health in self._actors.items() if not health.running]
        needed = [name for name in down if self._actors[name].essential]
        broken = [tally for tally in self._adapters.values() if tally.broken]
        status = "unavailable" if needed or not database.up else "degraded" if down or broken else "ready"
        content = ReadyReply(
            status=status,
            process=os.getpid(),
            database=database,
            actors={
                name: ActorOut(running=health.running, restarts=health.restarts, last_error=health.last_error)
                for name, health in self._actors.items()
            },
            adapters={
                name: AdapterHealthOut(
                    state=tally.state,
                    last_error=tally.waiting_for or tally.last_error,
                    consecutive_failures=tally.consecutive_failures,
                )
                for name, tally in self._adapters.items()
            },
        )
        if status == "unavailable":
            return Reply(content=content, status=503, headers=(("Retry-After", "1"),))
        return Reply(content=content)

    async def describe(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:  # noqa: ARG002 - nothing to ask
        """`GET /openapi.json`."""
        return Reply(content=self.openapi)


def json_bytes(document: object) -> bytes:
    """A document as JSON."""
    return msgspec.json.encode(document)
