-- Locks parked todos of every endpoint whose retry window has elapsed, longest overdue first, a bounded batch at a time,
-- stepping over rows that somebody holds and over those that failed alone in this sweep (R10). `max_attempts > 0` is the
-- marker of todos_retry (see the schema).
select t.endpoint_id, t.id
from todos t
where t.next_retry_at is not null and t.next_retry_at <= statement_timestamp() and t.max_attempts > 0
    and t.id <> all (%(bad)s::uuid[])
order by t.next_retry_at
limit %(limit)s
for update skip locked
