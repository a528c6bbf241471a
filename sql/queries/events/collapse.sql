-- Points events at the live todos that already held their keys: they made none of their own (R3).
update events e
set disposition = 'duplicate', todo_id = c.todo_id
from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[], %(todo_ids)s::uuid[]) as c (endpoint_id, id, todo_id)
where e.endpoint_id = c.endpoint_id and e.id = c.id
