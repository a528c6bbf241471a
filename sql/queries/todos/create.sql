-- Makes the todos of a batch, with ids in request order, and steps over each whose key a live todo of its endpoint holds
-- (R1, R2) and each whose endpoint is revoked or unknown. Keys go in sorted, so that two batches never wait for each other.
with instant as materialized (select clock_timestamp() as at),
asked as materialized (
    select c.*, uuid_v7(instant.at, c.ordinal) as id, instant.at
    from unnest(
        %(ordinals)b::integer[], %(endpoint_ids)b::uuid[], %(queues)b::text[], %(sources)b::text[], %(kinds)b::text[],
        %(titles)b::text[], %(payloads)b::text[], %(assignees)b::text[], %(caps)b::integer[], %(keys)b::text[],
        %(event_ids)b::uuid[]
    ) as c (
        ordinal, endpoint_id, queue, source, kind, title, payload, assignee, max_attempts, idempotency_key, event_id
    )
    cross join instant
    -- a look-up by id; an `exists` may be planned as a scan of every endpoint that there is
    where (select e.revoked_at is null from endpoints e where e.id = c.endpoint_id)
)
insert into todos (
    endpoint_id, id, queue, source, kind, title, payload, payload_bytes, assignee, max_attempts, idempotency_key,
    event_id, created_at, updated_at
)
select
    a.endpoint_id, a.id, a.queue, a.source, a.kind, a.title, a.payload::json, coalesce(octet_length(a.payload), 0),
    a.assignee, a.max_attempts, a.idempotency_key, a.event_id, a.at, a.at
from asked a
order by a.endpoint_id, a.idempotency_key collate "C", a.ordinal
on conflict (endpoint_id, idempotency_key)
    where idempotency_key is not null and state <> 'done' and (state <> 'failed' or next_retry_at is not null)
    do nothing
returning id, uuid_v7_ordinal(id) as ordinal, created_at as at
