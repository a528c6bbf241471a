-- Notes what is to be looked at by an operator (R23), with ids in request order, and steps over each whose endpoint is
-- revoked or unknown.
with instant as materialized (select clock_timestamp() as at)
insert into events (
    endpoint_id, id, adapter, queue, source, family, trust_mode, verified, verify_detail, disposition, external_id,
    native_id, content_type, headers, body, body_sha256, error, received_at
)
select
    c.endpoint_id, uuid_v7(instant.at, c.ordinal), c.adapter, c.queue, c.source, c.family, c.trust_mode, c.verified,
    c.verify_detail, 'quarantined', c.external_id, c.native_id, c.content_type, c.headers::json, c.body, c.body_sha256,
    c.error, instant.at
from unnest(
    %(ordinals)b::integer[], %(endpoint_ids)b::uuid[], %(adapters)b::text[], %(queues)b::text[], %(sources)b::text[],
    %(families)b::text[], %(trust_modes)b::text[], %(verified)b::boolean[], %(verify_details)b::text[],
    %(external_ids)b::text[], %(native_ids)b::boolean[], %(content_types)b::text[], %(headers)b::text[], %(bodies)b::bytea[],
    %(hashes)b::bytea[], %(errors)b::text[]
) as c (
    ordinal, endpoint_id, adapter, queue, source, family, trust_mode, verified, verify_detail, external_id, native_id,
    content_type, headers, body, body_sha256, error
)
cross join instant
-- a look-up by id; an `exists` may be planned as a scan of every endpoint that there is
where (select e.revoked_at is null from endpoints e where e.id = c.endpoint_id)
order by c.endpoint_id, c.external_id collate "C", c.ordinal
returning uuid_v7_ordinal(id) as ordinal, id
