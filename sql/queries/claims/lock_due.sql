-- Locks parked todos whose retry window has elapsed, longest overdue first: claimable without waiting for the scheduler (R9).
select t.endpoint_id, t.id, t.assignee, t.payload_bytes, t.created_at
from todos t
where t.endpoint_id = %(endpoint_id)s and t.next_retry_at is not null and t.next_retry_at <= statement_timestamp()
    and (%(queues)s::text[] is null or t.queue = any (%(queues)s))
    and (t.assignee is null or t.assignee = %(owner)s)
order by t.next_retry_at
limit %(limit)s
for update skip locked
