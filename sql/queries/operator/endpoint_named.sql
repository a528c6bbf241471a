-- The endpoint of this name, the live one first, so that an operator can also look at what a revoked one left behind.
select id, name, queues, created_at, revoked_at from endpoints where name = %(name)s
order by revoked_at nulls first
limit 1
