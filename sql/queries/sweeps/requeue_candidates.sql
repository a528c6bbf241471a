-- Names the rows that requeue.sql would move next, so that each can be tried alone when one of them fails (R10).
select t.id
from todos t
where t.next_retry_at is not null and t.next_retry_at <= statement_timestamp() and t.id <> all (%(bad)s::uuid[])
order by t.next_retry_at
limit %(limit)s
