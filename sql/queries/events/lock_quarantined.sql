-- Takes hold of a quarantined event, so that of two operators one decides about it.
select e.endpoint_id, e.id, e.source, e.queue, e.external_id, e.native_id, e.body
from events e
where e.id = %(id)s and e.disposition = 'quarantined'
for update
