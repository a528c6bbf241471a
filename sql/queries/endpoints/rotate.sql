-- Gives a live endpoint another credential; the old one never works again.
update endpoints set credential_sha256 = %(credential_sha256)s where name = %(name)s and revoked_at is null
returning id, name, queues, created_at, revoked_at
