-- claimed -> pending, or failed at the cap, for lapsed leases that this transaction has locked; each attempt ends in the
-- history as expired. SPEC-0003 Lease-Expiry Requeue and Reaper.
with asked as materialized (
    select old.ctid as place, old.lease_token as old_token, old.owner as old_owner, old.attempt as old_attempt,
        old.claimed_at as old_claimed_at
    from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[]) as c (endpoint_id, id)
    cross join lateral (
        select t.ctid, t.lease_token, t.owner, t.attempt, t.claimed_at
        from todos t
        where t.endpoint_id = c.endpoint_id and t.id = c.id
        limit 1
    ) old
),
moved as (
    update todos t
    set state = case when t.attempt < t.max_attempts then 'pending' else 'failed' end,
        error = case when t.attempt < t.max_attempts then t.error else 'lease expired' end,
        owner = case when t.attempt >= t.max_attempts then t.owner end,
        claimed_at = case when t.attempt >= t.max_attempts then t.claimed_at end,
        completed_at = case when t.attempt >= t.max_attempts then clock_timestamp() end,
        lease_token = null, lease_seconds = null, lease_expires_at = null, updated_at = clock_timestamp()
    from asked a
    where t.ctid = a.place and t.state = 'claimed'
        and (t.lease_expires_at <= statement_timestamp()) is true -- not a way to look for rows
    returning a.old_token, a.old_owner, a.old_attempt, a.old_claimed_at,
        t.endpoint_id, t.id, t.queue, t.kind, t.source, t.assignee, t.state
),
ended as (
    insert into attempts (endpoint_id, todo_id, lease_token, attempt, owner, claimed_at, ended_at, outcome, error)
    select m.endpoint_id, m.id, m.old_token, m.old_attempt, m.old_owner, m.old_claimed_at, clock_timestamp(), 'expired',
        'lease expired'
    from moved m
)
select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, t.state from moved t
