-- Locks the oldest pending todos of one queue, at most `limit`, in `created_at, id` order, and steps over
-- rows that another claimant holds. Pool rows and rows assigned to `owner` have an index each; where the owner has any, a
-- look at both heads first says how many of each are due, so that each probe locks only what it takes (R9, R12). Where one kind
-- comes short of that, because somebody else is taking its head at this moment, the other makes up for it.
with own as materialized (
    select t.created_at, t.id
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.assignee = %(owner)s and t.assignee is not null and t.state = 'pending' and t.queue = %(queue)s
    order by t.created_at, t.id
    limit %(limit)s
),
pool as materialized (
    select t.created_at, t.id
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.queue = %(queue)s and t.state = 'pending' and t.assignee is null
    order by t.created_at, t.id
    limit %(limit)s
),
heads as materialized (
    select count(*) filter (where merged.is_own) as from_own, count(*) filter (where not merged.is_own) as from_pool
    from (
        select h.is_own
        from (select o.created_at, o.id, true as is_own from own o union all select p.created_at, p.id, false from pool p) h
        order by h.created_at, h.id
        limit %(limit)s
    ) merged
),
pool_locked as materialized (
    select t.endpoint_id, t.id, t.assignee, t.payload_bytes, t.created_at
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.queue = %(queue)s and t.state = 'pending' and t.assignee is null
    order by t.created_at, t.id
    limit case when exists (select from own) then (select h.from_pool from heads h) else %(limit)s end
    for update skip locked
),
own_locked as materialized (
    select t.endpoint_id, t.id, t.assignee, t.payload_bytes, t.created_at
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.assignee = %(owner)s and t.assignee is not null and t.state = 'pending' and t.queue = %(queue)s
    order by t.created_at, t.id
    limit case when exists (select from own)
        then (select h.from_own + h.from_pool from heads h) - (select count(*) from pool_locked)
        else 0
    end
    for update skip locked
),
pool_rest as materialized (
    select t.endpoint_id, t.id, t.assignee, t.payload_bytes, t.created_at
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.queue = %(queue)s and t.state = 'pending' and t.assignee is null
        and t.id <> all (array(select p.id from pool_locked p))
    order by t.created_at, t.id
    limit case when exists (select from own)
        then (select h.from_own + h.from_pool from heads h) - (select count(*) from pool_locked) - (select count(*) from own_locked)
        else 0
    end
    for update skip locked
)
select * from pool_locked
union all
select * from own_locked
union all
select * from pool_rest
