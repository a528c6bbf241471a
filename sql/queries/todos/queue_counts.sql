-- What every queue of one endpoint holds. Reads the endpoint's whole history: callers ask at most once a second.
select
    t.queue,
    count(*) filter (where t.state = 'pending') as pending,
    count(*) filter (where t.state = 'claimed') as claimed,
    count(*) filter (where t.state = 'failed' and t.next_retry_at is not null) as retrying,
    count(*) filter (where t.state = 'failed' and t.next_retry_at is null) as dead,
    count(*) filter (where t.state = 'done') as done,
    extract(epoch from clock_timestamp() - min(t.created_at) filter (where t.state = 'pending'))::float8
        as oldest_pending_seconds
from todos t
where t.endpoint_id = %(endpoint_id)s and (%(scope)s::text[] is null or t.queue = any (%(scope)s))
group by t.queue
order by t.queue
