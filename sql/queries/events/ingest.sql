-- Notes what came in and makes its todos, each with the id of its event, in request order. Steps over each message whose
-- endpoint is revoked or unknown, and each whose native id was seen before (R3); a twin under way in another transaction is
-- waited for by the unique index, so the events go in before any todo. One statement, so that a body goes over once.
-- A todo whose key a live one holds (R1, R2) is not made: only if there is any, the events come back too, `made` being false.
with instant as materialized (select clock_timestamp() as at),
told as materialized (
    -- what is the same for many messages: their endpoint, their adapter's or webhook's own words, numbered from 0
    select o.*, (o.place - 1)::integer as number
    from unnest(
        %(endpoint_ids)b::uuid[], %(native_ids)b::boolean[], %(adapters)b::text[], %(queues)b::text[], %(sources)b::text[],
        %(families)b::text[], %(trust_modes)b::text[], %(verified)b::boolean[], %(verify_details)b::text[],
        %(content_types)b::text[]
    ) with ordinality as o (
        endpoint_id, native_id, adapter, queue, source, family, trust_mode, verified, verify_detail, content_type, place
    )
    -- a look-up by id; an `exists` may be planned as a scan of every endpoint that there is
    where (select e.revoked_at is null from endpoints e where e.id = o.endpoint_id)
),
asked as materialized (
    select t.*, c.*, uuid_v7(instant.at, (c.ordinal - 1)::integer) as id, instant.at
    from unnest(
        %(origins)b::integer[], %(external_ids)b::text[], %(headers)b::text[], %(bodies)b::bytea[], %(hashes)b::bytea[]
    ) with ordinality as c (origin, external_id, headers, body, body_sha256, ordinal)
    join told t on t.number = c.origin
    cross join instant
    where not t.native_id or not exists (
        select from events e
        where e.endpoint_id = t.endpoint_id and e.external_id = c.external_id and e.disposition <> 'stored' and e.native_id
    )
),
noted as (
    insert into events (
        endpoint_id, id, adapter, queue, source, family, trust_mode, verified, verify_detail, disposition, external_id,
        native_id, content_type, headers, body, body_sha256, todo_id, received_at
    )
    select
        a.endpoint_id, a.id, a.adapter, a.queue, a.source, a.family, a.trust_mode, a.verified, a.verify_detail, 'stored',
        a.external_id, a.native_id, a.content_type, a.headers::json, a.body, a.body_sha256, a.id, a.at
    from asked a
    order by a.endpoint_id, a.external_id collate "C", a.ordinal
    on conflict (endpoint_id, external_id) where native_id and disposition = 'stored' do nothing
    returning
        uuid_v7_ordinal(id) as ordinal, endpoint_id, id, queue, source, external_id, body, received_at as at
),
made as (
    insert into todos (
        endpoint_id, id, queue, source, kind, title, payload, payload_bytes, max_attempts, idempotency_key, event_id,
        created_at, updated_at
    )
    select
        n.endpoint_id, n.id, n.queue, n.source, (%(kinds)b::text[])[n.ordinal + 1], (%(titles)b::text[])[n.ordinal + 1],
        p.payload::json, octet_length(p.payload),
        (%(caps)b::integer[])[(%(origins)b::integer[])[n.ordinal + 1] + 1], n.external_id, n.id, n.at, n.at
    from noted n
    -- null where the body itself is the payload; looked up by place, since a join has nothing to find it by but a scan
    cross join lateral (
        select coalesce((%(payloads)b::text[])[n.ordinal + 1], convert_from(n.body, 'UTF8')) as payload
    ) p
    order by n.endpoint_id, n.external_id, n.ordinal  -- the same order as in todos/create.sql: the column is "C"
    on conflict (endpoint_id, idempotency_key)
        where idempotency_key is not null and state <> 'done' and (state <> 'failed' or next_retry_at is not null)
        do nothing
    returning uuid_v7_ordinal(id) as ordinal, id
)
select m.ordinal, m.id, true as made from made m
union all
select n.ordinal, n.id, false from noted n where (select count(*) from made) < (select count(*) from noted)
