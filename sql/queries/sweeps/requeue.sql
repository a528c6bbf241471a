-- failed -> pending, for parked todos with an elapsed retry window that this transaction has locked. SPEC-0003 Bounded Retries.
update todos t
set state = 'pending', owner = null, claimed_at = null, next_retry_at = null, updated_at = clock_timestamp()
from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[]) as c (endpoint_id, id)
cross join lateral (
    select old.ctid as place from todos old where old.endpoint_id = c.endpoint_id and old.id = c.id limit 1
) o
where t.ctid = o.place and t.state = 'failed'
    and (t.next_retry_at <= statement_timestamp()) is true -- not a way to look for rows
returning t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, t.state
