-- Failed todos that a bulk retry's filter names, oldest first, after the last one it looked at. Those of revoked endpoints can
-- never be retried, and would stand in the way of all others.
select t.endpoint_id, t.id
from todos t
where t.state = 'failed'
    and (select e.revoked_at is null from endpoints e where e.id = t.endpoint_id)
    and (%(endpoint_id)s::uuid is null or t.endpoint_id = %(endpoint_id)s)
    and (%(queue)s::text is null or t.queue = %(queue)s)
    and (%(status)s::text is null or (%(status)s = 'dead') = (t.next_retry_at is null))
    and (%(before)s::timestamptz is null or t.created_at < %(before)s)
    and t.id > %(after)s
order by t.id
limit %(limit)s
