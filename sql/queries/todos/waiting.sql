-- What already waits for whoever attaches to the doorbell: pending todos of one endpoint, oldest first, bounded (R25).
-- `max_attempts > 0` is the marker of todos_pool_any (see the schema).
(
    select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, t.created_at
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.state = 'pending' and t.assignee is null and t.max_attempts > 0
        and (%(scope)s::text[] is null or t.queue = any (%(scope)s))
    order by t.created_at, t.id
    limit %(limit)s
)
union all
(
    select t.endpoint_id, t.id, t.queue, t.kind, t.source, t.assignee, t.created_at
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.state = 'pending' and t.assignee = %(owner)s
        and (%(scope)s::text[] is null or t.queue = any (%(scope)s))
    order by t.created_at, t.id
    limit %(limit)s
)
order by created_at, todo_id
limit %(limit)s
