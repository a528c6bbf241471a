-- The endpoint that this credential opens, unless it was revoked.
select id, name, queues, created_at, revoked_at from endpoints where credential_sha256 = %(credential_sha256)s and revoked_at is null
