-- Names the rows that reap.sql would move next, so that each can be tried alone when one of them fails (R10).
select t.id
from todos t
where t.lease_expires_at is not null and t.lease_expires_at <= statement_timestamp() and t.id <> all (%(bad)s::uuid[])
order by t.lease_expires_at
limit %(limit)s
