-- Locks the oldest pending todos of several queues, at most `limit`, and steps over rows that another claimant holds. A look
-- at the heads of all says how many each queue owes, so that each probe locks only what it takes (R9, R12). Where queues come
-- short of that, because somebody else is taking their heads at this moment, what is assigned to `owner` makes up for it.
with heads as materialized (
    select h.queue, h.is_own
    from (
        select h.queue, h.created_at, h.id, false as is_own
        from unnest(%(queues)s::text[]) as q (queue)
        cross join lateral (
            select t.queue, t.created_at, t.id
            from todos t
            where t.endpoint_id = %(endpoint_id)s and t.queue = q.queue and t.state = 'pending' and t.assignee is null
            order by t.created_at, t.id
            limit %(limit)s
        ) h
        union all
        (
            select t.queue, t.created_at, t.id, true
            from todos t
            where t.endpoint_id = %(endpoint_id)s and t.assignee = %(owner)s and t.assignee is not null and t.state = 'pending' and t.queue = any (%(queues)s)
            order by t.created_at, t.id
            limit %(limit)s
        )
    ) h
    order by h.created_at, h.id
    limit %(limit)s
),
owed as materialized (
    select h.queue, count(*) as todos from heads h where not h.is_own group by h.queue
),
pool_locked as materialized (
    select locked.*
    from owed o
    cross join lateral (
        select t.endpoint_id, t.id, t.assignee, t.payload_bytes, t.created_at
        from todos t
        where t.endpoint_id = %(endpoint_id)s and t.queue = o.queue and t.state = 'pending' and t.assignee is null
        order by t.created_at, t.id
        limit o.todos
        for update skip locked
    ) locked
),
own_locked as materialized (
    select t.endpoint_id, t.id, t.assignee, t.payload_bytes, t.created_at
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.assignee = %(owner)s and t.assignee is not null and t.state = 'pending' and t.queue = any (%(queues)s)
    order by t.created_at, t.id
    limit (select count(*) from heads) - (select count(*) from pool_locked)
    for update skip locked
)
select * from pool_locked
union all
select * from own_locked
