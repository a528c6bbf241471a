-- Revoked endpoints that may still have open todos: a create that was under way at the revoke may commit after its sweep.
select id from endpoints where revoked_at is not null and drained_at is null order by revoked_at limit 1000
