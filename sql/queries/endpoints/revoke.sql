-- Ends an endpoint. Commits before its todos are swept, so that its credential is refused from here on (R17).
update endpoints set revoked_at = clock_timestamp() where name = %(name)s and revoked_at is null
returning id, name, queues, created_at, revoked_at
