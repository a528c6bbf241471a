-- claimed -> pending as if the claim had never been: its answer reached nobody (R15). The lease token guards it.
update todos t
set state = 'pending', attempt = t.attempt - 1, owner = null, claimed_at = null,
    lease_token = null, lease_seconds = null, lease_expires_at = null, updated_at = clock_timestamp()
from unnest(%(ordinals)s::integer[], %(endpoint_ids)s::uuid[], %(ids)s::uuid[], %(tokens)s::uuid[])
    as c (ordinal, endpoint_id, id, token)
cross join lateral (
    select old.ctid as place from todos old where old.endpoint_id = c.endpoint_id and old.id = c.id limit 1
) o
where t.ctid = o.place and t.state = 'claimed' and t.lease_token = c.token
returning c.ordinal, t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at
