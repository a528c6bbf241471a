-- Any open state -> dead-lettered: what a revoked endpoint leaves behind, a bounded batch at a time, with the reason (R17).
with left_open as materialized (
    select t.endpoint_id, t.id, t.lease_token, t.owner, t.attempt, t.claimed_at
    from endpoints e
    join todos t on t.endpoint_id = e.id
    where e.id = %(endpoint_id)s and e.revoked_at is not null and t.state <> 'done' and (t.state <> 'failed' or t.next_retry_at is not null)
    limit %(limit)s
    for update of t skip locked
),
moved as (
    update todos t
    set state = 'failed', error = 'endpoint revoked', next_retry_at = null,
        lease_token = null, lease_seconds = null, lease_expires_at = null,
        completed_at = clock_timestamp(), updated_at = clock_timestamp()
    from left_open o
    where t.endpoint_id = o.endpoint_id and t.id = o.id and t.state <> 'done' and (t.state <> 'failed' or t.next_retry_at is not null)
    returning o.lease_token as old_token, o.owner as old_owner, o.attempt as old_attempt, o.claimed_at as old_claimed_at,
        t.endpoint_id, t.id
),
ended as (
    insert into attempts (endpoint_id, todo_id, lease_token, attempt, owner, claimed_at, ended_at, outcome, error)
    select m.endpoint_id, m.id, m.old_token, m.old_attempt, m.old_owner, m.old_claimed_at, clock_timestamp(), 'revoked',
        'endpoint revoked'
    from moved m
    where m.old_token is not null
)
select count(*) as moved from moved
