-- Locks claimed todos whose lease has lapsed below the cap, longest lapsed first: a crash is healed by the next claim, with
-- or without a reaper (R9). Those at the cap are the reaper's, and are never handed out.
select t.endpoint_id, t.id, t.assignee, t.payload_bytes, t.created_at
from todos t
where t.endpoint_id = %(endpoint_id)s and t.lease_expires_at is not null and t.lease_expires_at <= statement_timestamp()
    and t.attempt < t.max_attempts
    and (%(queues)s::text[] is null or t.queue = any (%(queues)s))
    and (t.assignee is null or t.assignee = %(owner)s)
order by t.lease_expires_at
limit %(limit)s
for update skip locked
