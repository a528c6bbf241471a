-- Which of these todos the endpoints can see, and in what state: tells "absent" from "not claimable" after a claim by id.
select named.*
from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[]) as c (endpoint_id, id)
cross join lateral (
    select t.endpoint_id, t.id, t.state, t.assignee
    from todos t
    where t.endpoint_id = c.endpoint_id and t.id = c.id
        and exists (
            select from endpoints e where e.id = t.endpoint_id and (e.queues is null or t.queue = any (e.queues))
        )
    limit 1
) named
