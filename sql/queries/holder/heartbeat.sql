-- claimed -> claimed: the holder's lease runs on, by its own duration and never shorter, or to exactly the duration given (R6).
update todos t
set lease_expires_at = case
        when c.lease_seconds is null
            then greatest(t.lease_expires_at, clock_timestamp() + make_interval(secs => t.lease_seconds))
        else clock_timestamp() + make_interval(secs => c.lease_seconds)
    end,
    updated_at = clock_timestamp()
from unnest(
    %(ordinals)s::integer[], %(endpoint_ids)s::uuid[], %(ids)s::uuid[], %(owners)s::text[], %(tokens)s::uuid[],
    %(leases)s::integer[]
) as c (ordinal, endpoint_id, id, owner, token, lease_seconds)
cross join lateral (
    select old.ctid as place from todos old where old.endpoint_id = c.endpoint_id and old.id = c.id limit 1
) o
where t.ctid = o.place and t.state = 'claimed'
    and (c.token is null or t.lease_token = c.token) and (c.owner is null or t.owner = c.owner)
returning c.ordinal, t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at
