-- What those who attend ought to know, in one look. The oldest pending todos of every line that somebody stands in, so that a
-- ring that was lost is made up for (R25): of a queue,
-- of any queue of an endpoint (`max_attempts > 0` is the marker of todos_pool_any, see the schema), and of what is assigned to
-- an owner, in a queue or in any. And what a claim would find of what is due or lapsed, for those who wait in claims (R9):
-- it is not pending yet, so `pending_seconds` is null. And those of their credentials that open nothing any more (R17): rows
-- with nothing but these, each looked up by its endpoint's id alone (see refused).
(
    select h.endpoint_id, h.todo_id, h.queue, h.kind, h.source, h.assignee,
        extract(epoch from clock_timestamp() - h.updated_at)::double precision as pending_seconds, -- null where it is not pending
        null::bytea as refused
    from (
        select h.*
        from unnest(%(queue_endpoints)s::uuid[], %(queues)s::text[], %(queue_wanted)s::integer[]) as l (endpoint_id, queue, wanted)
        cross join lateral (
            select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, t.updated_at
            from todos t
            where t.endpoint_id = l.endpoint_id and t.queue = l.queue and t.state = 'pending' and t.assignee is null
            order by t.created_at, t.id
            limit l.wanted
        ) h
        union all
        select h.*
        from unnest(%(any_endpoints)s::uuid[], %(any_wanted)s::integer[]) as l (endpoint_id, wanted)
        cross join lateral (
            select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, t.updated_at
            from todos t
            where t.endpoint_id = l.endpoint_id and t.state = 'pending' and t.assignee is null and t.max_attempts > 0
            order by t.created_at, t.id
            limit l.wanted
        ) h
        union all
        select h.*
        from unnest(%(owner_endpoints)s::uuid[], %(owners)s::text[], %(owner_queues)s::text[], %(owner_wanted)s::integer[])
            as l (endpoint_id, owner, queue, wanted)
        cross join lateral (
            select a.*
            from (
                -- whatever is assigned to an owner in other queues is looked through no further than this
                select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, t.updated_at
                from todos t
                where t.endpoint_id = l.endpoint_id and t.assignee = l.owner and t.assignee is not null and t.state = 'pending'
                order by t.created_at, t.id
                limit 200
            ) a
            where l.queue is null or a.queue = l.queue
            limit l.wanted
        ) h
        union all
        select h.*
        from unnest(%(overdue_endpoints)s::uuid[], %(overdue_wanted)s::integer[]) as l (endpoint_id, wanted)
        cross join lateral (
            select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, null::timestamptz as updated_at
            from todos t
            where t.endpoint_id = l.endpoint_id and t.next_retry_at is not null and t.next_retry_at <= statement_timestamp()
            order by t.next_retry_at
            limit l.wanted
        ) h
        union all
        select h.*
        from unnest(%(overdue_endpoints)s::uuid[], %(overdue_wanted)s::integer[]) as l (endpoint_id, wanted)
        cross join lateral (
            select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, null::timestamptz as updated_at
            from todos t
            where t.endpoint_id = l.endpoint_id and t.lease_expires_at is not null and t.lease_expires_at <= statement_timestamp()
                and t.attempt < t.max_attempts
            order by t.lease_expires_at
            limit l.wanted
        ) h
    ) h
    limit %(limit)s
)
union all
select c.endpoint_id, null, null, null, null, null, null, c.credential_sha256
from unnest(%(present_endpoints)s::uuid[], %(credentials_sha256)s::bytea[]) as c (endpoint_id, credential_sha256)
cross join lateral (
    select e.credential_sha256, e.revoked_at from endpoints e where e.id = c.endpoint_id limit 1
) e
where e.revoked_at is not null or e.credential_sha256 <> c.credential_sha256
