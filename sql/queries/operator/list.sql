-- Todos of any endpoint, newest first, payloads and results left where they are. The operator's twin of the listings.
-- `max_attempts > 0` is the marker of todos_queue (see the schema).
select t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at
from todos t
where t.max_attempts > 0
    and (%(endpoint_id)s::uuid is null or t.endpoint_id = %(endpoint_id)s)
    and (%(queue)s::text is null or t.queue = %(queue)s)
    and (%(state)s::text is null or t.state = %(state)s)
    and (%(status)s::text is null or case %(status)s
        when 'retrying' then t.state = 'failed' and t.next_retry_at is not null
        when 'dead' then t.state = 'failed' and t.next_retry_at is null
        else t.state = %(status)s end)
    and (%(before)s::uuid is null or t.id < %(before)s)
order by t.id desc
limit %(limit)s
