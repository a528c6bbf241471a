-- One todo of an endpoint, whole, if its queue lies in the endpoint's scope.
select t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at,
    t.payload::text as payload, t.result::text as result, true as payload_read
from todos t
join endpoints e on e.id = t.endpoint_id
where t.endpoint_id = %(endpoint_id)s and t.id = %(id)s and (e.queues is null or t.queue = any (e.queues))
