-- The live todo that stands in the way of a retry: another holder of the same key (R8).
select twin.id
from todos t
cross join lateral (
    select other.id
    from todos other
    where other.endpoint_id = t.endpoint_id and other.idempotency_key = t.idempotency_key
        and other.idempotency_key is not null
        and other.state <> 'done' and (other.state <> 'failed' or other.next_retry_at is not null)
        and other.id <> t.id
    limit 1
) twin
where t.endpoint_id = %(endpoint_id)s and t.id = %(id)s
