"""The types that requests are decoded into. They validate (R27), and `/openapi.json` describes them: one home for both.

Every body and query is a frozen struct that refuses unknown fields; bounds stand beside the field that they bound.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from switchboard import todo as bounds
from switchboard.webhook import ENDPOINTS_MAX, SECRETS_MAX

Queue = Annotated[str, Meta(min_length=1, max_length=bounds.QUEUE_CHARS_MAX, description="A label within the endpoint.")]
Owner = Annotated[
    str,
    Meta(min_length=1, max_length=bounds.OWNER_CHARS_MAX, description="Who holds a claim; by default the endpoint's name."),
]
Assignee = Annotated[
    str, Meta(min_length=1, max_length=bounds.OWNER_CHARS_MAX, description="The only owner that may claim it; absent: any.")
]
Kind = Annotated[str, Meta(min_length=1, max_length=bounds.KIND_CHARS_MAX, description="A word for what sort of work it is.")]
Title = Annotated[str, Meta(max_length=bounds.TITLE_CHARS_MAX, description="One line for people.")]
Payload = Annotated[Raw, Meta(description="What is to be done: any JSON, kept as it comes.")]
Result = Annotated[Raw, Meta(description="What came of it: any JSON, kept as it comes.")]
ErrorText = Annotated[str, Meta(max_length=bounds.ERROR_CHARS_MAX, description="What went wrong.")]
LeaseToken = Annotated[UUID, Meta(description="The `lease_token` that came with the claim; it alone proves the holder.")]
LeaseSeconds = Annotated[
    int,
    Meta(ge=1, le=bounds.LEASE_SECONDS_MAX, description="How long the claim holds without a heartbeat."),
]
WaitSeconds = Annotated[
    float, Meta(ge=0, le=bounds.WAIT_SECONDS_MAX, description="How long to wait for a todo where there is none.")
]
MaxAttempts = Annotated[
    int, Meta(ge=1, le=bounds.MAX_ATTEMPTS_MAX, description="Claims after which a failed todo is dead-lettered.")
]
Queues = Annotated[list[Queue], Meta(min_length=1, max_length=bounds.QUEUES_PER_CALL_MAX)]
EndpointName = Annotated[str, Meta(pattern=f"^{bounds.ENDPOINT_NAME.pattern}$")]
ENDPOINT_NAME_IN_WORDS = "1 to 63 of a-z, 0-9, `_` and `-`, the first a letter or a digit"
IdempotencyKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=bounds.IDEMPOTENCY_KEY_BYTES_MAX,
        description=f"Equal keys are one todo while it is live. At most {bounds.IDEMPOTENCY_KEY_BYTES_MAX} bytes of UTF-8.",
    ),
]
StateName = Literal["pending", "claimed", "done", "failed"]
StatusName = Literal["pending", "claimed", "retrying", "dead", "done"]


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all of them."""


class NoBody(Strict, frozen=True, kw_only=True):
    """A call that takes nothing."""


class CreateTodoBody(Strict, frozen=True, kw_only=True):
    """A todo to be made."""

    queue: Queue
    title: Title | None = None
    kind: Kind | None = None
    payload: Payload | UnsetType = UNSET
    idempotency_key: IdempotencyKey | None = None
    assignee: Assignee | None = None
    max_attempts: MaxAttempts | None = None

    def __post_init__(self) -> None:
        """The bound on the key is in bytes, which its type cannot say."""
        if self.idempotency_key and len(self.idempotency_key.encode()) > bounds.IDEMPOTENCY_KEY_BYTES_MAX:
            raise FieldError("idempotency_key", f"Expected at most {bounds.IDEMPOTENCY_KEY_BYTES_MAX} bytes of UTF-8")


class OperatorCreateTodoBody(CreateTodoBody, frozen=True, kw_only=True):
    """A todo to be made for an endpoint."""

    endpoint: EndpointName


class CreateBatchBody(Strict, frozen=True, kw_only=True):
    """Todos to be made, answered in order."""

    todos: Annotated[list[CreateTodoBody], Meta(min_length=1, max_length=bounds.BATCH_MAX)]


class QueueChoice(Strict, frozen=True, kw_only=True):
    """`queue`, or `queues`, or neither: any in scope."""

    queue: Queue | None = None
    queues: Queues | None = None

    def __post_init__(self) -> None:
        """One of the two, so that nobody wonders which one counts."""
        if self.queue is not None and self.queues is not None:
            raise FieldError("queues", "Expected `queue` or `queues`, not both")

    def chosen(self) -> tuple[str, ...]:
        """The queues asked for; empty for any in scope."""
        if self.queue is not None:
            return (self.queue,)
        return tuple(dict.fromkeys(self.queues or ()))


class ClaimBody(QueueChoice, frozen=True, kw_only=True):
    """A claim of the next todos."""

    owner: Owner | None = None
    lease_seconds: LeaseSeconds | None = None
    max: Annotated[int, Meta(ge=1, le=bounds.BATCH_MAX, description="How many todos at the most.")] = 1
    wait_seconds: WaitSeconds = 0


class OperatorClaimBody(Strict, frozen=True, kw_only=True):
    """An operator's claim of one todo. `owner` defaults to `operator`."""

    owner: Owner | None = None
    lease_seconds: LeaseSeconds | None = None


class ClaimOneBody(Strict, frozen=True, kw_only=True):
    """A claim of one todo by its id."""

    owner: Owner | None = None
    lease_seconds: LeaseSeconds | None = None


class HolderBody(Strict, frozen=True, kw_only=True):
    """The guard of a claim's holder: the lease token alone is enough; where both are given, both must match."""

    owner: Owner | None = None
    lease_token: LeaseToken | None = None


class HeartbeatBody(HolderBody, frozen=True, kw_only=True):
    """Extends the lease: by its own duration, or to exactly the one given."""

    lease_seconds: LeaseSeconds | None = None


class NextClaim(QueueChoice, frozen=True, kw_only=True):
    """The claim that follows a completion in the same commit."""

    lease_seconds: LeaseSeconds | None = None


class CompleteItemBody(HolderBody, frozen=True, kw_only=True):
    """Completes one todo."""

    result: Result | UnsetType = UNSET


class CompleteBody(CompleteItemBody, frozen=True, kw_only=True):
    """Completes one todo and, with `next`, claims the following one in the same commit."""

    next: NextClaim | None = None


class FailBody(HolderBody, frozen=True, kw_only=True):
    """Fails one todo: parked for its backoff, or dead-lettered at the cap."""

    error: ErrorText | None = None


class ReleaseBody(HolderBody, frozen=True, kw_only=True):
    """Gives one todo back."""


class HeartbeatItem(HeartbeatBody, frozen=True, kw_only=True):
    """One of a batch."""

    id: str


class CompleteItem(CompleteItemBody, frozen=True, kw_only=True):
    """One of a batch."""

    id: str


class FailItem(FailBody, frozen=True, kw_only=True):
    """One of a batch."""

    id: str


class ReleaseItem(ReleaseBody, frozen=True, kw_only=True):
    """One of a batch."""

    id: str


class HeartbeatBatchBody(Strict, frozen=True, kw_only=True):
    """Heartbeats, answered in order."""

    items: Annotated[list[HeartbeatItem], Meta(min_length=1, max_length=bounds.BATCH_MAX)]


class CompleteBatchBody(Strict, frozen=True, kw_only=True):
    """Completions, answered in order."""

    items: Annotated[list[CompleteItem], Meta(min_length=1, max_length=bounds.BATCH_MAX)]


class FailBatchBody(Strict, frozen=True, kw_only=True):
    """Failures, answered in order."""

    items: Annotated[list[FailItem], Meta(min_length=1, max_length=bounds.BATCH_MAX)]


class ReleaseBatchBody(Strict, frozen=True, kw_only=True):
    """Releases, answered in order."""

    items: Annotated[list[ReleaseItem], Meta(min_length=1, max_length=bounds.BATCH_MAX)]


class NoQuery(Strict, frozen=True, kw_only=True):
    """An address that takes no query."""


class ListQuery(Strict, frozen=True, kw_only=True):
    """Which todos a listing shows. `cursor` is the `next_cursor` of the page before."""

    queue: Queue | None = None
    state: StateName | None = None
    status: StatusName | None = None
    limit: Annotated[int, Meta(ge=1, le=bounds.LIST_LIMIT_MAX)] = 50
    cursor: UUID | None = None


class DoorbellQuery(Strict, frozen=True, kw_only=True):
    """Which queues to listen to; none: any in scope."""

    repeatable: ClassVar[frozenset[str]] = frozenset({"queue"})

    queue: Queues | None = None


class OperatorListQuery(ListQuery, frozen=True, kw_only=True):
    """The same over every endpoint, or over one."""

    endpoint: EndpointName | None = None


class EventsQuery(Strict, frozen=True, kw_only=True):
    """Which events a listing shows. `cursor` is the `next_cursor` of the page before."""

    endpoint: EndpointName | None = None
    source: Annotated[str, Meta(min_length=1, max_length=bounds.QUEUE_CHARS_MAX)] | None = None
    disposition: Literal["stored", "duplicate", "quarantined", "discarded"] | None = None
    limit: Annotated[int, Meta(ge=1, le=bounds.LIST_LIMIT_MAX)] = 50
    cursor: UUID | None = None


class VendBody(Strict, frozen=True, kw_only=True):
    """An endpoint to be vended. Without `queues` it may use every queue."""

    name: EndpointName
    queues: Queues | None = None

    def __post_init__(self) -> None:
        """`$` in a pattern forgives a newline at the end; a name does not."""
        if not bounds.ENDPOINT_NAME.fullmatch(self.name):
            raise FieldError("name", f"Expected {ENDPOINT_NAME_IN_WORDS}")


SchemeName = Literal["github", "gitlab", "gitea", "stripe", "slack", "standard", "hmac", "token"]
Secrets = Annotated[list[str], Meta(min_length=1, max_length=SECRETS_MAX)]


class CreateWebhookBody(Strict, frozen=True, kw_only=True):
    """A webhook to be made. Without `secrets` one is made for it. The scheme `hmac` alone has a header and encodings."""

    name: EndpointName
    scheme: SchemeName
    endpoints: Annotated[list[EndpointName], Meta(min_length=1, max_length=ENDPOINTS_MAX)]
    queue: Queue
    secrets: Secrets | None = None
    header: str | None = None
    algorithm: Literal["sha1", "sha256", "sha512"] | None = None
    encoding: Literal["hex", "base64"] | None = None

    def __post_init__(self) -> None:
        """`$` in a pattern forgives a newline at the end; a name does not."""
        if not bounds.ENDPOINT_NAME.fullmatch(self.name):
            raise FieldError("name", f"Expected {ENDPOINT_NAME_IN_WORDS}")


class RotateWebhookBody(Strict, frozen=True, kw_only=True):
    """New secrets, or one that is made; with `path` a new address instead."""

    secrets: Secrets | None = None
    path: bool = False


class RouteBody(Strict, frozen=True, kw_only=True):
    """One more endpoint for a webhook."""

    endpoint: EndpointName


class RetryManyBody(Strict, frozen=True, kw_only=True):
    """Which failed todos are retried: at most `limit`, oldest first. `before` is an instant of creation, RFC 3339."""

    endpoint: EndpointName | None = None
    queue: Queue | None = None
    status: Literal["dead", "retrying"] | None = None
    before: Annotated[datetime, Meta(tz=True)] | None = None
    limit: Annotated[int, Meta(ge=1, le=bounds.BATCH_MAX)] = bounds.BATCH_MAX


class FieldError(ValueError):
    """A bound that a type cannot say; msgspec turns it into its own error and adds the way to the struct."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{problem} - in `{field}`")


def text_of(raw: Raw | UnsetType) -> str | None:
    """The JSON text that stood in a field, as it came; None where the field was absent."""
    return None if isinstance(raw, UnsetType) else bytes(raw).decode()
