"""What a handler gets and gives: a decoded, frozen call in, a reply value out. Handlers know no server (rule 8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
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


async def _always() -> None:
    """A caller without a credential has none to lose."""


@attrs.frozen(kw_only=True)
class Call(Generic[B, Q]):
    """One request, after authentication and decoding. `path` holds the parts of the path that a route names."""

    path: Mapping[str, str]
    body: B
    query: Q
    caller: Endpoint | None
    still_valid: Callable[[], Awaitable[object]] = attrs.field(default=_always, eq=False)
    """Raises `Unauthorized` once the caller's credential is no longer good: asked again after every wait."""

    @property
    def endpoint(self) -> Endpoint:
        """The calling endpoint, on routes of agents."""
        if self.caller is None:
            raise RuntimeError("a route that is not an agent's asked for its endpoint")
        return self.caller


@attrs.frozen(kw_only=True)
class Reply:
    """What goes back. `claims` are the todos it hands over: undone if it never reaches the socket (R15)."""

    content: msgspec.Struct | bytes
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    claims: tuple[Todo, ...] = ()


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

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    who: Who
    summary: str
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    size: Size = "payload"
    query: type[msgspec.Struct]
    replies: Mapping[int, type[msgspec.Struct]]
    media: str = "application/json"
