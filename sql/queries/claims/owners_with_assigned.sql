-- Which of these owners have something assigned to them that may be claimable now. Most have nothing, and share one scan.
-- Lateral look-ups of one row each, in the order of the index that is meant for it: an `exists` may be planned as one scan of
-- whatever is assigned to anybody.
select c.endpoint_id, c.owner
from unnest(%(endpoint_ids)s::uuid[], %(owners)s::text[]) as c (endpoint_id, owner)
cross join lateral (
    (
        select 1
        from todos t
        where t.endpoint_id = c.endpoint_id and t.assignee = c.owner and t.assignee is not null and t.state = 'pending'
        order by t.created_at
        limit 1
    )
    union all
    (
        select 1
        from todos t
        where t.endpoint_id = c.endpoint_id and t.assignee = c.owner and t.assignee is not null
            and t.next_retry_at is not null and t.next_retry_at <= statement_timestamp()
        order by t.next_retry_at
        limit 1
    )
    union all
    (
        select 1
        from todos t
        where t.endpoint_id = c.endpoint_id and t.assignee = c.owner and t.assignee is not null
            and t.lease_expires_at is not null and t.lease_expires_at <= statement_timestamp()
        order by t.lease_expires_at
        limit 1
    )
    limit 1
) assigned
