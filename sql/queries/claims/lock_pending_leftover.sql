-- Locks whatever pending pool todos of these queues nobody holds, queue after queue, at most `limit`: for a claim over
-- several queues whose first look met only rows that other claimants had locked at that moment.
select locked.*
from unnest(%(queues)s::text[]) as q (queue)
cross join lateral (
    select t.endpoint_id, t.id, t.assignee, t.payload_bytes, t.created_at
    from todos t
    where t.endpoint_id = %(endpoint_id)s and t.queue = q.queue and t.state = 'pending' and t.assignee is null
        and t.id <> all (%(held)s::uuid[])
    order by t.created_at, t.id
    limit %(limit)s
    for update skip locked
) locked
limit %(limit)s
