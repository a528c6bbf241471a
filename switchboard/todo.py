"""The todo: its states, its transitions, its bounds. The one home of the state machine; no I/O.

    create ──▶ pending ──claim──▶ claimed ──complete──▶ done
                 ▲  ▲               │ │ ▲
                 │  └──release──────┘ │ └── heartbeat
                 │  └──undo, expire───┘
                 │                    └──fail──▶ failed, parked (next_retry_at) ──due, retry──▶ pending
                 └──────────────retry────────── failed, dead   (at the cap, or revoked)

`sql/queries` holds one conditional statement for each arrow: its WHERE clause is the arrow's left side, its SET clause
the right one. `TRANSITIONS` says the same as a table; the Hypothesis machine in `tests/store` holds the two together.
SPEC-0003 Todo Lifecycle State Machine, with the three named additions of the rulings (R7 release, R15 undo, R17 revoke).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import attrs

State = Literal["pending", "claimed", "done", "failed"]
Status = Literal["pending", "claimed", "retrying", "dead", "done"]
Transition = Literal[
    "create", "claim", "heartbeat", "complete", "fail", "expire", "requeue", "retry", "release", "undo", "revoke"
]

# transition -> {status before: statuses it may lead to}. A status that is missing refuses the transition.
# claim of `retrying` needs an elapsed window, claim of `claimed` a lapsed lease below the cap (R9); `expire` a lapsed
# lease; `requeue` an elapsed window. Which of two right sides is taken is the attempt cap's doing.
TRANSITIONS: Final[dict[Transition, dict[Status | None, frozenset[Status]]]] = {
    "create": {None: frozenset({"pending"})},
    "claim": {
        "pending": frozenset({"claimed"}),
        "retrying": frozenset({"claimed"}),
        "claimed": frozenset({"claimed"}),
    },
    "heartbeat": {"claimed": frozenset({"claimed"})},
    "complete": {"claimed": frozenset({"done"})},
    "fail": {"claimed": frozenset({"retrying", "dead"})},
    "expire": {"claimed": frozenset({"pending", "dead"})},
    "requeue": {"retrying": frozenset({"pending"})},
    "retry": {"retrying": frozenset({"pending"}), "dead": frozenset({"pending"})},
    "release": {"claimed": frozenset({"pending", "dead"})},
    "undo": {"claimed": frozenset({"pending"})},
    "revoke": {"pending": frozenset({"dead"}), "claimed": frozenset({"dead"}), "retrying": frozenset({"dead"})},
}

# Bounds of the contract (R27). Checked before SQL by the request types, and again by the schema's CHECKs.
LEASE_SECONDS_MAX: Final = 86_400
MAX_ATTEMPTS_MAX: Final = 100
WAIT_SECONDS_MAX: Final = 60
BATCH_MAX: Final = 1_000
QUEUE_CHARS_MAX: Final = 200
OWNER_CHARS_MAX: Final = 200
KIND_CHARS_MAX: Final = 200
TITLE_CHARS_MAX: Final = 1_000
ERROR_CHARS_MAX: Final = 65_536
IDEMPOTENCY_KEY_BYTES_MAX: Final = 512
QUEUES_PER_CALL_MAX: Final = 100
CLAIM_ANSWER_PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
LIST_LIMIT_MAX: Final = 200

LEASE_EXPIRED: Final = "lease expired"
ENDPOINT_REVOKED: Final = "endpoint revoked"
ENDPOINT_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

_CANONICAL_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

NOWHERE: Final = UUID(int=0)
"""A scope, or an id, that owns nothing. The schema refuses it as an endpoint, so nothing is ever found under it."""


def canonical_id(text: object) -> UUID:
    """The id that `text` spells in the one canonical way, else `NOWHERE`.

    A malformed id then takes the same path, and gets the same bytes for an answer, as an unknown or foreign one
    (R16; SPEC-0003 Endpoint Ownership: a malformed scope owns nothing and is never a type error).
    """
    if isinstance(text, UUID):
        return text
    if isinstance(text, str) and _CANONICAL_ID.fullmatch(text):
        return UUID(text)
    return NOWHERE


@attrs.frozen(kw_only=True)
class Attempt:
    """One claim of a todo: who, when, and how it ended. The attempt still under way has neither end nor outcome."""

    attempt: int
    owner: str
    claimed_at: datetime
    ended_at: datetime | None = None
    outcome: Literal["completed", "failed", "released", "expired", "revoked"] | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class Todo:
    """A durable work item, as the store read it after the transition.

    `payload` and `result` are JSON texts exactly as they came (R22); None where they were not read, since a heartbeat
    or a listing never moves them: then `payload_read` is False and their sizes in bytes stand for them.
    All instants are the database's (R13).
    """

    endpoint_id: UUID
    id: UUID
    queue: str
    source: str
    kind: str | None
    title: str | None
    state: State
    payload: str | None = None
    payload_bytes: int
    payload_read: bool = False
    result: str | None = None
    result_bytes: int | None
    error: str | None
    owner: str | None
    assignee: str | None
    attempt: int
    max_attempts: int
    idempotency_key: str | None
    event_id: UUID | None
    lease_token: UUID | None
    lease_expires_at: datetime | None
    next_retry_at: datetime | None
    created_at: datetime
    updated_at: datetime
    claimed_at: datetime | None
    completed_at: datetime | None

    @property
    def status(self) -> Status:
        """What a person wants to know: `failed` is told apart into parked (`retrying`) and dead-lettered (`dead`)."""
        if self.state == "failed":
            return "dead" if self.next_retry_at is None else "retrying"
        return self.state


@attrs.frozen(kw_only=True)
class Ring:
    """A todo became pending: a hint for whoever waits. It carries no payload, and losing one costs only time (R25)."""

    endpoint_id: UUID
    queue: str
    todo_id: UUID
    kind: str | None
    source: str
    assignee: str | None
