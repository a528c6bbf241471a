-- One todo of any endpoint, whole. The operator's twin of todos/get.
select t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at,
    t.payload::text as payload, t.result::text as result, true as payload_read
from todos t
where t.id = %(id)s
