-- failed -> pending on an explicit word, unless another live todo of the endpoint holds the key (R8). Attempts start again at 0.
update todos t
set state = 'pending', attempt = 0, owner = null, claimed_at = null, next_retry_at = null, completed_at = null,
    updated_at = clock_timestamp()
where t.endpoint_id = %(endpoint_id)s and t.id = %(id)s and t.state = 'failed'
    and exists (
        select from endpoints e
        where e.id = t.endpoint_id and e.revoked_at is null and (e.queues is null or t.queue = any (e.queues))
    )
    -- one look-up by key; a `not exists` may be planned as a scan of everything that is live
    and (
        select other.id from todos other
        where other.endpoint_id = t.endpoint_id and other.idempotency_key = t.idempotency_key
            and other.idempotency_key is not null
            and other.state <> 'done' and (other.state <> 'failed' or other.next_retry_at is not null)
            and other.id <> t.id
        limit 1
    ) is null
returning t.endpoint_id, t.id, t.queue, t.source, t.kind, t.title, t.state, t.payload_bytes, t.result_bytes, t.error, t.owner,
    t.assignee, t.attempt, t.max_attempts, t.idempotency_key, t.event_id, t.lease_token, t.lease_expires_at, t.next_retry_at,
    t.created_at, t.updated_at, t.claimed_at, t.completed_at,
    t.payload::text as payload, t.result::text as result, true as payload_read
