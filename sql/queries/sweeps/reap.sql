-- claimed -> pending, or failed at the cap: every lapsed lease of every endpoint, a bounded batch at a time, stepping over
-- rows that somebody holds and over those that failed alone in this sweep (R10). SPEC-0003 Lease-Expiry Requeue and Reaper.
with lapsed as materialized (
    select t.endpoint_id, t.id, t.lease_token, t.owner, t.attempt, t.claimed_at
    from todos t
    where t.lease_expires_at is not null and t.lease_expires_at <= statement_timestamp()
        and t.id <> all (%(bad)s::uuid[])
        and (%(only)s::uuid is null or t.id = %(only)s)
    order by t.lease_expires_at
    limit %(limit)s
    for update skip locked
),
moved as (
    update todos t
    set state = case when t.attempt < t.max_attempts then 'pending' else 'failed' end,
        error = case when t.attempt < t.max_attempts then t.error else 'lease expired' end,
        owner = case when t.attempt >= t.max_attempts then t.owner end,
        claimed_at = case when t.attempt >= t.max_attempts then t.claimed_at end,
        completed_at = case when t.attempt >= t.max_attempts then clock_timestamp() end,
        lease_token = null, lease_seconds = null, lease_expires_at = null, updated_at = clock_timestamp()
    from lapsed l
    where t.endpoint_id = l.endpoint_id and t.id = l.id
        and t.state = 'claimed' and t.lease_expires_at <= statement_timestamp()
    returning l.lease_token as old_token, l.owner as old_owner, l.attempt as old_attempt, l.claimed_at as old_claimed_at,
        t.endpoint_id, t.id, t.queue, t.kind, t.source, t.assignee, t.state
),
ended as (
    insert into attempts (endpoint_id, todo_id, lease_token, attempt, owner, claimed_at, ended_at, outcome, error)
    select m.endpoint_id, m.id, m.old_token, m.old_attempt, m.old_owner, m.old_claimed_at, clock_timestamp(), 'expired',
        'lease expired'
    from moved m
)
select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, t.state from moved t
