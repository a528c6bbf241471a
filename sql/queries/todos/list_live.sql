-- Pending, claimed or parked todos of one endpoint, through the index of the live. Newest first, payloads and results left where they are.
-- `max_attempts > 0` is the marker of todos_live (see the schema).
select t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at
from todos t
where t.endpoint_id = %(endpoint_id)s
    and t.state <> 'done' and (t.state <> 'failed' or t.next_retry_at is not null) and t.max_attempts > 0
    and (%(queue)s::text is null or t.queue = %(queue)s)
    and (%(state)s::text is null or t.state = %(state)s)
    and (%(scope)s::text[] is null or t.queue = any (%(scope)s))
    and (%(before)s::uuid is null or t.id < %(before)s)
order by t.id desc
limit %(limit)s
