"""What a house answers, as a client reads it: todos, who one is, and refusals as the errors that they are. No I/O."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

import msgspec

from switchboard import errors
from switchboard.errors import QueueError, SwitchboardError
from switchboard.todo import Status, canonical_id

T = TypeVar("T")
_SECONDS: Final = re.compile(r"[0-9]{1,6}")


class NotAHouse(SwitchboardError):
    """What answers at this address does not speak as a house does: the wrong address, or something in front of it."""


class Todo(msgspec.Struct, frozen=True, kw_only=True):
    """A todo as the house showed it. Times are the house's; ids and tokens are text."""

    id: str
    queue: str
    status: Status
    attempt: int
    max_attempts: int
    created_at: datetime
    updated_at: datetime
    source: str | None = None
    kind: str | None = None
    title: str | None = None
    error: str | None = None
    owner: str | None = None
    assignee: str | None = None
    idempotency_key: str | None = None
    lease_token: str | None = None
    lease_expires_at: datetime | None = None
    next_retry_at: datetime | None = None
    payload_json: msgspec.Raw = msgspec.field(name="payload", default=msgspec.Raw(b"null"))
    """The payload as the very JSON text that was given to the house."""
    as_json: msgspec.Raw = msgspec.Raw(b"{}")
    """The whole todo as the house sent it."""
    heard_at: float = 0.0
    """When the answer came, in seconds of the event loop's own clock: the lease is counted from here."""

    @property
    def payload(self) -> Any:
        """The payload as a Python value, decoded anew each time."""
        return json.loads(bytes(self.payload_json))

    @property
    def lease_seconds(self) -> float:
        """How long the lease was when the house showed it; 0 where it is not held. Both instants are the house's."""
        return 0.0 if self.lease_expires_at is None else (self.lease_expires_at - self.updated_at).total_seconds()

    def __repr__(self) -> str:
        # Neither the lease token nor what the payload may hold belongs into a log.
        return f"Todo(id={self.id!r}, queue={self.queue!r}, status={self.status!r}, attempt={self.attempt})"


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What the house takes where a request says nothing, and the largest payload or result that it keeps."""

    lease_seconds: int
    max_attempts: int
    payload_bytes: int


class Whoami(msgspec.Struct, frozen=True, kw_only=True):
    """Whose credential it is. `queues` None means every queue."""

    endpoint: str
    id: str
    queues: tuple[str, ...] | None
    defaults: Defaults


class TodoReply(msgspec.Struct, frozen=True, kw_only=True):
    todo: Todo


class TodosReply(msgspec.Struct, frozen=True, kw_only=True):
    todos: tuple[msgspec.Raw, ...]


class _Problem(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457, as the contract narrows it."""

    code: Literal[
        "unauthorized",
        "forbidden",
        "not_found",
        "conflict",
        "invalid",
        "too_large",
        "unsupported",
        "rate_limited",
        "unavailable",
        "internal",
    ]
    detail: str = ""
    field: str | None = None
    state: str | None = None
    already: bool = False
    todo_id: str | None = None


def claimed(body: bytes, *, heard_at: float) -> list[Todo]:
    """The todos of a claim's answer. Raises NotAHouse where it is none."""
    return [
        msgspec.structs.replace(decoded(raw, Todo), as_json=raw, heard_at=heard_at)
        for raw in map(msgspec.Raw.copy, decoded(body, TodosReply).todos)
    ]


def decoded(body: bytes | msgspec.Raw, shape: type[T]) -> T:
    """An answer as a value of `shape`. Raises NotAHouse where it is something else."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise NotAHouse("Its answer is not what a house says.") from exc


def refusal(status: int, body: bytes, retry_after: str) -> SwitchboardError:
    """The error that an answer with such a status is; `retry_after` is the header of this name, or nothing."""
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        if status >= 500:  # a proxy whose house is away says so in words of its own
            return errors.Unavailable(detail=f"Something in front of the house answered {status}.")
        return NotAHouse(f"It answered {status}, and not as a house does.")
    return _error(problem, status, int(retry_after) if _SECONDS.fullmatch(retry_after) else 1)


def _error(problem: _Problem, status: int, retry_after_seconds: int) -> QueueError:
    detail = problem.detail or "The house says no more; its log does."
    match problem.code:
        case "conflict":
            other = None if problem.todo_id is None else canonical_id(problem.todo_id)
            return errors.Conflict(detail=detail, state=problem.state, already=problem.already, todo_id=other)
        case "invalid":
            return errors.Invalid(detail=detail, field=problem.field, status=status)
        case "too_large":
            return errors.TooLarge(detail=detail, field=problem.field)
        case "unsupported":
            return errors.Unsupported(detail=detail, status=status)
        case "rate_limited":
            return errors.RateLimited(detail=detail, retry_after_seconds=retry_after_seconds)
        case "unavailable":
            return errors.Unavailable(detail=detail, retry_after_seconds=retry_after_seconds)
        case "unauthorized":
            return errors.Unauthorized(detail=detail)
        case "forbidden":
            return errors.Forbidden(detail=detail)
        case "not_found":
            return errors.NotFound(detail=detail)
        case "internal":
            return QueueError(detail=detail)
