-- What of these todos is pending: another process says that they became so, and those who wait here want to know what they are.
select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee
from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[]) as c (endpoint_id, id)
cross join lateral (
    select t.endpoint_id, t.id, t.queue, t.kind, t.source, t.assignee, t.state
    from todos t
    where t.endpoint_id = c.endpoint_id and t.id = c.id
    limit 1
) t
where t.state = 'pending'
