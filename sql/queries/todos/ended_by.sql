-- How its holder ended the attempt under each of these lease tokens, for a caller who repeats a finish whose answer was lost (R32).
select ended.*
from unnest(%(endpoint_ids)s::uuid[], %(ids)s::uuid[], %(tokens)s::uuid[]) as c (endpoint_id, id, token)
cross join lateral (
    select a.endpoint_id, a.todo_id, a.lease_token, a.outcome
    from attempts a
    where a.endpoint_id = c.endpoint_id and a.todo_id = c.id and a.lease_token = c.token and a.by_holder
    limit 1
) ended
