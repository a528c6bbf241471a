-- Locks what a revoked endpoint left open, a bounded batch at a time, stepping over rows that somebody holds and over those
-- that failed alone in this sweep (R10, R17). `max_attempts > 0` is the marker of todos_live (see the schema).
select t.endpoint_id, t.id
from todos t
where t.endpoint_id = %(endpoint_id)s and t.state <> 'done' and (t.state <> 'failed' or t.next_retry_at is not null)
    and t.max_attempts > 0
    and t.id <> all (%(bad)s::uuid[])
    and (select e.revoked_at is not null from endpoints e where e.id = %(endpoint_id)s)
order by t.id
limit %(limit)s
for update skip locked
