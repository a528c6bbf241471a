-- Locks every todo that a batch of holder's verbs names and its endpoints may see. The caller sends the names sorted, and they
-- are looked up one by one in that order, so that two batches never wait for each other in a ring. What it returns tells
-- "absent" from "not in that state" afterwards.
select held.*
from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[]) as c (endpoint_id, id)
cross join lateral (
    select t.endpoint_id, t.id, t.state
    from todos t
    where t.endpoint_id = c.endpoint_id and t.id = c.id
        and exists (
            select from endpoints e where e.id = t.endpoint_id and (e.queues is null or t.queue = any (e.queues))
        )
    for update of t
) held
