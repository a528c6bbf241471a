-- Notes what came in, with ids in request order, and steps over each whose endpoint is revoked or unknown, and each to be
-- stored whose native id was seen before (R3). A twin under way in another transaction is waited for by the unique index.
with instant as materialized (select clock_timestamp() as at),
told as materialized (
    -- what is the same for many messages: their adapter's or webhook's own words, numbered from 0
    select o.*, (o.place - 1)::integer as number
    from unnest(
        %(adapters)b::text[], %(queues)b::text[], %(sources)b::text[], %(families)b::text[], %(trust_modes)b::text[],
        %(verified)b::boolean[], %(verify_details)b::text[], %(content_types)b::text[]
    ) with ordinality as o (adapter, queue, source, family, trust_mode, verified, verify_detail, content_type, place)
),
asked as materialized (
    select c.*, uuid_v7(instant.at, c.ordinal) as id, instant.at
    from unnest(
        %(ordinals)b::integer[], %(endpoint_ids)b::uuid[], %(origins)b::integer[], %(external_ids)b::text[],
        %(native_ids)b::boolean[], %(headers)b::text[], %(bodies)b::bytea[], %(hashes)b::bytea[], %(errors)b::text[]
    ) as c (ordinal, endpoint_id, origin, external_id, native_id, headers, body, body_sha256, error)
    cross join instant
    -- a look-up by id; an `exists` may be planned as a scan of every endpoint that there is
    where (select e.revoked_at is null from endpoints e where e.id = c.endpoint_id)
        and (%(disposition)s::text <> 'stored' or not c.native_id or not exists (
            select from events e
            where e.endpoint_id = c.endpoint_id and e.external_id = c.external_id and e.disposition <> 'stored' and e.native_id
        ))
)
insert into events (
    endpoint_id, id, adapter, queue, source, family, trust_mode, verified, verify_detail, disposition, external_id,
    native_id, content_type, headers, body, body_sha256, error, todo_id, received_at
)
select
    a.endpoint_id, a.id, t.adapter, t.queue, t.source, t.family, t.trust_mode, t.verified, t.verify_detail,
    %(disposition)s, a.external_id, a.native_id, t.content_type, a.headers::json, a.body, a.body_sha256, a.error,
    -- the todo that is made next gets the id of its event, so that the event need not be written twice
    case when %(disposition)s::text = 'stored' then a.id end, a.at
from asked a
join told t on t.number = a.origin
order by a.endpoint_id, a.external_id, a.ordinal
on conflict (endpoint_id, external_id) where native_id and disposition = 'stored' do nothing
returning uuid_v7_ordinal(id) as ordinal, id
