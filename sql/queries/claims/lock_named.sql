-- Locks these very todos, if their endpoint may see them and nobody else is changing them at this moment: a claim never
-- waits behind another caller's row, it has lost the race.
select named.*
from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[]) as c (endpoint_id, id)
cross join lateral (
    select t.endpoint_id, t.id
    from todos t
    where t.endpoint_id = c.endpoint_id and t.id = c.id
        and exists (
            select from endpoints e where e.id = t.endpoint_id and (e.queues is null or t.queue = any (e.queues))
        )
    for update of t skip locked
) named
