-- The live endpoint of this name.
select id, name, queues, created_at, revoked_at from endpoints where name = %(name)s and revoked_at is null
