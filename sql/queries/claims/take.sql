-- pending, due or lapsed -> claimed, for rows that this transaction has locked: owner, a lease of its own and one more
-- attempt each. A lapsed claim that is taken over ends in the history as expired. SPEC-0003 Atomic Claim.
with asked as materialized (
    select c.*, old.ctid as place, old.lease_token as old_token, old.owner as old_owner, old.attempt as old_attempt,
        old.claimed_at as old_claimed_at
    from unnest(
        %(ordinals)s::integer[], %(endpoint_ids)s::uuid[], %(ids)s::uuid[], %(owners)s::text[], %(tokens)s::uuid[],
        %(leases)s::integer[]
    ) as c (ordinal, endpoint_id, id, owner, token, lease_seconds)
    cross join lateral (
        select t.ctid, t.lease_token, t.owner, t.attempt, t.claimed_at
        from todos t
        where t.endpoint_id = c.endpoint_id and t.id = c.id
        limit 1
    ) old
),
taken as (
    update todos t
    set state = 'claimed', owner = c.owner, lease_token = c.token, lease_seconds = c.lease_seconds,
        lease_expires_at = clock_timestamp() + make_interval(secs => c.lease_seconds),
        claimed_at = clock_timestamp(), updated_at = clock_timestamp(), attempt = t.attempt + 1, next_retry_at = null
    from asked c
    where t.ctid = c.place
        and (t.assignee is null or t.assignee = c.owner)
        and (
            t.state = 'pending'
            or (t.state = 'failed' and t.next_retry_at <= statement_timestamp())
            or (t.state = 'claimed' and t.lease_expires_at <= statement_timestamp() and t.attempt < t.max_attempts)
        )
    returning c.ordinal, c.old_token, c.old_owner, c.old_attempt, c.old_claimed_at, t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at,
        t.payload::text as payload, t.result::text as result, true as payload_read
),
ended as (
    insert into attempts (endpoint_id, todo_id, lease_token, attempt, owner, claimed_at, ended_at, outcome, error)
    select k.endpoint_id, k.id, k.old_token, k.old_attempt, k.old_owner, k.old_claimed_at, clock_timestamp(), 'expired',
        'lease expired'
    from taken k
    where k.old_token is not null
)
select t.ordinal, t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at, t.payload, t.result, t.payload_read from taken t
