-- Points events at the todos that were found for their keys: a live one that held it already, so that they made none of their
-- own (R3), or one made in its place.
update events e
set disposition = c.disposition, todo_id = c.todo_id
from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[], %(todo_ids)s::uuid[], %(dispositions)s::text[])
    as c (endpoint_id, id, todo_id, disposition)
where e.endpoint_id = c.endpoint_id and e.id = c.id
