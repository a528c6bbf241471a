-- Which of these credentials open nothing any more: their endpoint was revoked, or has another one since (R17). Looked up by
-- id alone, one row each: told the rest, the planner reads every live endpoint through the index of their names.
select c.endpoint_id, c.credential_sha256
from unnest(%(endpoint_ids)s::uuid[], %(credentials_sha256)s::bytea[]) as c (endpoint_id, credential_sha256)
cross join lateral (
    select e.credential_sha256, e.revoked_at from endpoints e where e.id = c.endpoint_id limit 1
) e
where e.revoked_at is not null or e.credential_sha256 <> c.credential_sha256
