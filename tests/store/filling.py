"""Rows by the thousand, made by the database itself: the history of an endpoint, and work in every state."""

from __future__ import annotations

from uuid import UUID

from switchboard.database.border import Session

_HISTORY = b"""
insert into todos (
    endpoint_id, id, queue, source, title, payload, payload_bytes, state, owner, attempt, max_attempts, idempotency_key,
    error, created_at, updated_at, claimed_at, completed_at
)
select %(endpoint_id)s, uuid_v7(i.at, n %% 16384), case n %% 4 when 0 then 'other' else 'work' end, 'api', 'a title',
    '{"n": 1}', 8, case n %% 10 when 0 then 'failed' else 'done' end, 'worker', 5, 5, 'history-' || n,
    case n %% 10 when 0 then 'broken' end, i.at, i.at, i.at, i.at
from generate_series(1, %(rows)s::integer) as s (n)
cross join lateral (select timestamptz '2026-01-01' + n * interval '1 second' as at) i
"""

# `what` is one of the open statuses, or overdue in one of two ways, or at the cap.
_OPEN = b"""
insert into todos (
    endpoint_id, id, queue, source, payload, payload_bytes, assignee, max_attempts, idempotency_key, created_at, updated_at,
    state, owner, attempt, claimed_at, lease_token, lease_seconds, lease_expires_at, next_retry_at
)
select %(endpoint_id)s, uuid_v7(i.at, n %% 16384), %(queue)s, 'api', '{"n": 1}', 8, %(assignee)s, 5,
    %(what)s || '-' || %(queue)s || '-' || coalesce(%(assignee)s, '') || '-' || n, i.at, i.at,
    case when w.claimed then 'claimed' when w.parked then 'failed' else 'pending' end,
    case when w.claimed or w.parked then 'worker' end,
    case when w.claimed or w.parked then 1 else 0 end,
    case when w.claimed or w.parked then i.at end,
    case when w.claimed then gen_random_uuid() end,
    case when w.claimed then 300 end,
    case %(what)s when 'claimed' then clock_timestamp() + interval '5 minutes'
        when 'lapsed' then clock_timestamp() - interval '1 day' + n * interval '1 ms' end,
    case %(what)s when 'retrying' then clock_timestamp() + interval '5 minutes'
        when 'due' then clock_timestamp() - interval '1 day' + n * interval '1 ms' end
from generate_series(1, %(rows)s::integer) as s (n)
cross join lateral (select timestamptz '2026-06-01' + n * interval '1 second' as at) i
cross join (select %(what)s in ('claimed', 'lapsed') as claimed, %(what)s in ('retrying', 'due') as parked) w
returning id
"""


def fill_with_history(session: Session, endpoint_id: UUID, rows: int) -> None:
    """Adds terminal todos, nine done for each dead one, in two queues."""
    session.execute(_HISTORY, {"endpoint_id": endpoint_id, "rows": rows})


def fill_with_work(
    session: Session, endpoint_id: UUID, what: str, rows: int, *, queue: str = "work", assignee: str | None = None
) -> list[UUID]:
    """Adds open todos: "pending", "claimed", "lapsed", "retrying" or "due". Returns their ids, oldest first."""
    values = {"endpoint_id": endpoint_id, "what": what, "rows": rows, "queue": queue, "assignee": assignee}
    return [row[0] for row in session.execute(_OPEN, values).fetchall()]
