-- What is known of messages that were not noted: for each the event of the same bytes, if there is one, and whether there is
-- one of other bytes. Ids that are not native are only remembered while they are quarantined.
select
    c.ordinal, same.id, same.todo_id, same.id is not null as same,
    exists (
        select from events e
        where c.native_id and e.native_id and e.endpoint_id = c.endpoint_id and e.external_id = c.external_id
            and e.disposition = 'stored' and e.body_sha256 <> c.body_sha256
        union all
        select from events e
        where c.native_id and e.native_id and e.endpoint_id = c.endpoint_id and e.external_id = c.external_id
            and e.disposition <> 'stored' and e.body_sha256 <> c.body_sha256
    ) as other
from unnest(
    %(ordinals)b::integer[], %(endpoint_ids)b::uuid[], %(external_ids)b::text[], %(native_ids)b::boolean[], %(hashes)b::bytea[]
) as c (ordinal, endpoint_id, external_id, native_id, body_sha256)
left join lateral (
    select f.id, f.todo_id from (
        select e.id, e.todo_id from events e
        where c.native_id and e.native_id and e.endpoint_id = c.endpoint_id and e.external_id = c.external_id
            and e.disposition = 'stored' and e.body_sha256 = c.body_sha256
        union all
        select e.id, e.todo_id from events e
        where e.endpoint_id = c.endpoint_id and e.external_id = c.external_id and e.disposition <> 'stored'
            and e.body_sha256 = c.body_sha256
            and (c.native_id and e.native_id or not c.native_id and e.disposition = 'quarantined')
    ) f
    limit 1
) same on true
