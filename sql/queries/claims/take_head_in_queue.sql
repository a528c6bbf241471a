-- pending -> claimed in one step for claims of one todo each: the oldest of one queue's pool, dealt in `created_at, id` order,
-- stepping over rows that another claimant holds (R9). It takes none where one of these owners has something assigned that
-- is pending: those claims are for probes that look at both heads (lock_pending_in_queue). SPEC-0003 Atomic Claim.
with assigned as materialized (
    select 1
    from (select distinct owner from unnest(%(owners)s::text[]) as o (owner)) c
    cross join lateral (
        select 1
        from todos t
        where t.endpoint_id = %(endpoint_id)s and t.assignee = c.owner and t.assignee is not null and t.state = 'pending'
        order by t.created_at
        limit 1
    ) a
    limit 1
),
locked as materialized (
    select t.ctid as at, t.created_at, t.id
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.queue = %(queue)s and t.state = 'pending' and t.assignee is null
    order by t.created_at, t.id
    limit case when exists (select from assigned) then 0 else %(limit)s end
    for update skip locked
),
dealt as materialized (
    select d.*
    from unnest(
        array(select l.at from locked l order by l.created_at, l.id), %(owners)s::text[], %(tokens)s::uuid[], %(leases)s::integer[]
    ) with ordinality as d (at, owner, token, lease_seconds, place)
    where d.at is not null
)
update todos t
set state = 'claimed', owner = d.owner, lease_token = d.token, lease_seconds = d.lease_seconds,
    lease_expires_at = clock_timestamp() + make_interval(secs => d.lease_seconds),
    claimed_at = clock_timestamp(), updated_at = clock_timestamp(), attempt = t.attempt + 1
from dealt d
where t.ctid = d.at and t.state = 'pending'
returning d.place - 1 as ordinal,
    t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error,
    t.owner, t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at,
    t.next_retry_at, t.created_at, t.updated_at, t.claimed_at, t.completed_at,
    t.payload::text as payload, t.result::text as result, true as payload_read
