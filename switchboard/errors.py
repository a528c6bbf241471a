"""Every way a request can fail, by whose doing it was. No I/O, no foreign errors: borders translate theirs into these.

SPEC-0003 Error Handling Standards: domain failures are values of these types and are never swallowed.
"""

from __future__ import annotations

from uuid import UUID

import attrs


class SwitchboardError(Exception):
    """The base of everything this house raises on purpose."""


@attrs.frozen(kw_only=True, eq=False)
class QueueError(SwitchboardError):
    """A failure that a caller is told about. `code` is the contract's word for it; `detail` is for a person to read."""

    detail: str
    code: str = attrs.field(init=False, default="internal")
    status: int = attrs.field(init=False, default=500)
    title: str = attrs.field(init=False, default="Internal error")

    def __str__(self) -> str:
        return self.detail


@attrs.frozen(kw_only=True, eq=False)
class Unauthorized(QueueError):
    """No credential, an unknown one, or one whose endpoint was revoked."""

    code: str = attrs.field(init=False, default="unauthorized")
    status: int = attrs.field(init=False, default=401)
    title: str = attrs.field(init=False, default="Unauthorized")


@attrs.frozen(kw_only=True, eq=False)
class Forbidden(QueueError):
    """The credential is good, but this queue is outside its endpoint's scope."""

    code: str = attrs.field(init=False, default="forbidden")
    status: int = attrs.field(init=False, default=403)
    title: str = attrs.field(init=False, default="Forbidden")


@attrs.frozen(kw_only=True, eq=False)
class NotFound(QueueError):
    """Absent, foreign or malformed: the three look the same on purpose (R16)."""

    detail: str = "There is no such todo."
    code: str = attrs.field(init=False, default="not_found")
    status: int = attrs.field(init=False, default=404)
    title: str = attrs.field(init=False, default="Not found")


@attrs.frozen(kw_only=True, eq=False)
class Conflict(QueueError):
    """The todo exists, but is not in the state, or not held by the caller, that the transition needs.

    `state` is the state it is in; `already` is true where this very lease token ended its attempt in this very way
    (R32), so a caller who repeats a finish whose answer was lost knows that it is done.
    `todo_id` names the other live todo that stands in the way of a retry (R8).
    """

    state: str | None = None
    already: bool = False
    todo_id: UUID | None = None
    code: str = attrs.field(init=False, default="conflict")
    status: int = attrs.field(init=False, default=409)
    title: str = attrs.field(init=False, default="Conflict")


@attrs.frozen(kw_only=True, eq=False)
class Invalid(QueueError):
    """The request itself is wrong; `field` names where. Status 400 where it is not JSON at all, else 422."""

    field: str | None = None
    code: str = attrs.field(init=False, default="invalid")
    status: int = 422
    title: str = attrs.field(init=False, default="Invalid request")


@attrs.frozen(kw_only=True, eq=False)
class Unstorable(QueueError):
    """The database refuses this message and blames it alone; `detail` is its word. Counted, then quarantined (R23)."""

    code: str = attrs.field(init=False, default="invalid")
    status: int = attrs.field(init=False, default=422)
    title: str = attrs.field(init=False, default="Cannot be stored")


@attrs.frozen(kw_only=True, eq=False)
class TooLarge(QueueError):
    """A body or payload over its limit."""

    field: str | None = None
    code: str = attrs.field(init=False, default="too_large")
    status: int = attrs.field(init=False, default=413)
    title: str = attrs.field(init=False, default="Too large")


@attrs.frozen(kw_only=True, eq=False)
class Unsupported(QueueError):
    """A content type, encoding or method that this address does not speak."""

    code: str = attrs.field(init=False, default="unsupported")
    status: int = 415
    title: str = attrs.field(init=False, default="Unsupported")


@attrs.frozen(kw_only=True, eq=False)
class RateLimited(QueueError):
    """Too many for now; `retry_after_seconds` says when to try again."""

    retry_after_seconds: int = 1
    code: str = attrs.field(init=False, default="rate_limited")
    status: int = attrs.field(init=False, default=429)
    title: str = attrs.field(init=False, default="Rate limited")


@attrs.frozen(kw_only=True, eq=False)
class Unavailable(QueueError):
    """The database is away, too slow, or read-only. Nothing is known to be wrong with the request: try it again.

    `outcome_unknown` is true where the connection was lost at COMMIT (R32): it may have happened. Callers repeat with
    their idempotency key or lease token, and both make that safe.
    """

    retry_after_seconds: int = 1
    outcome_unknown: bool = False
    code: str = attrs.field(init=False, default="unavailable")
    status: int = attrs.field(init=False, default=503)
    title: str = attrs.field(init=False, default="Unavailable")


class BlamesOne(SwitchboardError):
    """One command of a batch is to blame (SQLSTATE classes 22, 23, 54, or text that cannot be encoded).

    Raised by the database border before COMMIT was sent, so nothing of the batch happened: take it apart.
    """


class RerunWhole(SwitchboardError):
    """A serialisation failure or a deadlock (40001, 40P01): nothing happened, the same batch may be run once more."""


class OutcomeUnknown(SwitchboardError):
    """The connection was lost while COMMIT was under way: it may have happened, it may not (R32).

    `result` is what the work returned before COMMIT was sent: what stands if it did happen.
    """

    def __init__(self, result: object) -> None:
        super().__init__("the connection was lost at COMMIT")
        self.result = result


class BrokerError(SwitchboardError):
    """A broker refused a command, or is away. The message names command and key, and never a secret (R28)."""


class StartError(SwitchboardError):
    """The house cannot open. The message is the one line that the operator reads."""


class ConfigError(SwitchboardError):
    """The configuration is wrong. The message lists every fault: file, key, and the nearest right name."""
