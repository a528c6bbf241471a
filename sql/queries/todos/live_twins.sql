-- Finds the live todo, at most one, that holds each of these keys of these endpoints (R2).
select c.ordinal, twin.*
from unnest(%(ordinals)s::integer[], %(endpoint_ids)s::uuid[], %(keys)s::text[]) as c (ordinal, endpoint_id, key)
cross join lateral (
    select t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
        t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
        t.created_at, t.updated_at, t.claimed_at, t.completed_at,
        t.payload::text as payload, t.result::text as result, true as payload_read
    from todos t
    where t.endpoint_id = c.endpoint_id and t.idempotency_key = c.key
        and t.idempotency_key is not null and t.state <> 'done' and (t.state <> 'failed' or t.next_retry_at is not null)
    limit 1
) twin
