-- Events of one disposition, newest first, through its own index: the quarantined are few among many stored.
select e.id, e.endpoint_id, p.name as endpoint, e.adapter, e.queue, e.source, e.family, e.trust_mode, e.verified, e.verify_detail,
    e.disposition, e.external_id, e.native_id, e.content_type, octet_length(e.body) as size, e.error, e.todo_id, e.received_at
from events e
join endpoints p on p.id = e.endpoint_id
where e.disposition = %(disposition)s and e.disposition <> 'stored'
    and (%(endpoint_id)s::uuid is null or e.endpoint_id = %(endpoint_id)s)
    and (%(source)s::text is null or e.source = %(source)s)
    and (%(before)s::uuid is null or e.id < %(before)s)
order by e.id desc
limit %(limit)s
