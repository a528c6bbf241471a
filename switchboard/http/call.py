"""What a handler gets and gives: a decoded, frozen call in, a reply value out. Handlers know no server (rule 8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

import attrs
import msgspec

from switchboard.commands import Command, Outcome
from switchboard.database.border import Capacity, Session
from switchboard.endpoint import Endpoint
from switchboard.todo import Ring, Todo

B = TypeVar("B", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)
T = TypeVar("T")

Who = Literal["agent", "operator", "anyone"]
Size = Literal["payload", "batch"]


@attrs.frozen(kw_only=True, eq=False)
class Arrival:
    """A request as it comes in, for a handler that takes any bytes. `read` gives the body, no more of it than so many bytes.

    It raises `TooLarge`, `Unsupported` for an encoded body, and `Invalid` where it does not arrive in time.
    """

    headers: Sequence[tuple[bytes, bytes]] = attrs.field(repr=False)
    peer: str | None
    content_length: int | None
    read: Callable[[int], Awaitable[bytes]]


@attrs.frozen(kw_only=True)
class Call(Generic[B, Q]):
    """One request, after authentication and decoding. `path` holds the parts of the path that a route names."""

    path: Mapping[str, str]
    body: B
    query: Q
    caller: Endpoint | None
    credential_sha256: bytes = attrs.field(default=b"", repr=False)
    """By what the calling endpoint came in, on routes of agents: whoever stays is asked for it again (R17)."""
    arrival: Arrival | None = None
    """On routes that take any bytes."""

    @property
    def endpoint(self) -> Endpoint:
        """The calling endpoint, on routes of agents."""
        if self.caller is None:
            raise RuntimeError("a route that is not an agent's asked for its endpoint")
        return self.caller


@attrs.frozen(kw_only=True)
class Reply:
    """What goes back. `claims` are the todos it hands over: undone if it never reaches the socket (R15).

    Content that comes piece by piece is an answer without an end of its own; `over` is called once when it is over, however
    it ended.
    """

    content: msgspec.Struct | bytes | AsyncIterator[bytes]
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    claims: tuple[Todo, ...] = ()
    over: Callable[[], None] | None = None


Handler = Callable[[Call[Any, Any]], Awaitable[Reply]]


class Ledger(Protocol):
    """The door to the queue's state: see `actors.ledger`."""

    async def submit(self, commands: Sequence[Command]) -> list[Outcome]:
        """An outcome for each command, in order."""
        ...

    async def submit_one(self, command: Command) -> Outcome:
        """The outcome of one command; an error is raised."""
        ...


class Transact(Protocol):
    """The database border: see `switchboard.database.border`."""

    async def __call__(self, work: Callable[[Session], T], *, capacity: Capacity = "callers") -> T:
        """Runs `work` in one transaction."""
        ...


RingBell = Callable[[Ring], None]
"""Announces a pending todo, after its commit; never waits."""


@attrs.frozen(kw_only=True)
class Route:
    """One address: who may call it, what it takes, what it answers. The router and `/openapi.json` are made of these."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    who: Who
    summary: str
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    size: Size = "payload"
    any_bytes: bool = False
    query: type[msgspec.Struct]
    replies: Mapping[int, type[msgspec.Struct]]
    media: str = "application/json"
