-- Which of these endpoints are not revoked.
select id from endpoints where id = any (%(ids)s::uuid[]) and revoked_at is null
