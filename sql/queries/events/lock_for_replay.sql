-- Takes hold of an event, and reads what its todo was made of, where that is still there.
select e.endpoint_id, e.id, e.source, e.queue, e.external_id, e.disposition, e.body,
    t.id as todo_id, t.queue as todo_queue, t.kind, t.title, t.payload::text as payload, t.max_attempts
from events e
left join todos t on t.endpoint_id = e.endpoint_id and t.id = e.todo_id
where e.id = %(id)s
for update of e
