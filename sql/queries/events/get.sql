-- One event of any endpoint, its headers included, its body left where it is. For the operator.
select e.id, e.endpoint_id, p.name as endpoint, e.adapter, e.queue, e.source, e.family, e.trust_mode, e.verified, e.verify_detail,
    e.disposition, e.external_id, e.native_id, e.content_type, octet_length(e.body) as size, e.error, e.todo_id, e.received_at, e.headers::text as headers
from events e
join endpoints p on p.id = e.endpoint_id
where e.id = %(id)s
