-- claimed -> done, for the holder only. A lapsed lease that nobody has taken over still counts (R5).
with asked as materialized (
    select c.*, old.ctid as place, old.lease_token as old_token, old.owner as old_owner, old.attempt as old_attempt,
        old.claimed_at as old_claimed_at
    from unnest(
        %(ordinals)s::integer[], %(endpoint_ids)s::uuid[], %(ids)s::uuid[], %(owners)s::text[], %(tokens)s::uuid[], %(results)s::text[]
    ) as c (ordinal, endpoint_id, id, owner, token, result)
    cross join lateral (
        select t.ctid, t.lease_token, t.owner, t.attempt, t.claimed_at
        from todos t
        where t.endpoint_id = c.endpoint_id and t.id = c.id
        limit 1
    ) old
),
moved as (
    update todos t
    set state = 'done', result = c.result::json, result_bytes = octet_length(c.result), error = null,
        lease_token = null, lease_seconds = null, lease_expires_at = null,
        completed_at = clock_timestamp(), updated_at = clock_timestamp()
    from asked c
    where t.ctid = c.place and t.state = 'claimed'
        and (c.token is null or t.lease_token = c.token) and (c.owner is null or t.owner = c.owner)
    returning (c.token is not null or c.owner is not null) as by_holder, c.ordinal, c.old_token, c.old_owner, c.old_attempt, c.old_claimed_at, t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at
),
ended as (
    insert into attempts (endpoint_id, todo_id, lease_token, attempt, owner, claimed_at, ended_at, outcome, error, by_holder)
    select m.endpoint_id, m.id, m.old_token, m.old_attempt, m.old_owner, m.old_claimed_at, clock_timestamp(), 'completed',
        null, m.by_holder
    from moved m
)
select t.ordinal, t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at from moved t
