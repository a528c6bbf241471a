-- Locks lapsed leases of every endpoint, longest lapsed first, a bounded batch at a time, stepping over rows that somebody
-- holds and over those that failed alone in this sweep (R10). `max_attempts > 0` is the marker of todos_lease (see the schema).
select t.endpoint_id, t.id
from todos t
where t.lease_expires_at is not null and t.lease_expires_at <= statement_timestamp() and t.max_attempts > 0
    and t.id <> all (%(bad)s::uuid[])
order by t.lease_expires_at
limit %(limit)s
for update skip locked
