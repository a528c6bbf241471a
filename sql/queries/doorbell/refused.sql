-- Which of these credentials open nothing any more: their endpoint was revoked, or has another one since (R17).
select c.endpoint_id, c.credential_sha256
from unnest(%(endpoint_ids)s::uuid[], %(credentials_sha256)s::bytea[]) as c (endpoint_id, credential_sha256)
left join lateral (
    select e.id from endpoints e where e.id = c.endpoint_id and e.credential_sha256 = c.credential_sha256 and e.revoked_at is null
) live on true
where live.id is null
