-- The live endpoints of these names.
select id, name, queues, created_at, revoked_at from endpoints where name = any(%(names)s::text[]) and revoked_at is null
