-- The endpoints that adapters write for: the live one of each name, else that there was one and it was revoked (R18).
select distinct on (e.name) e.name, e.id, e.queues, e.revoked_at
from endpoints e
where e.name = any (%(names)s::text[])
order by e.name, e.revoked_at desc nulls first
