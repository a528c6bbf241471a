-- Makes an endpoint, unless a live one has the name.
insert into endpoints (id, name, credential_sha256, queues)
values (uuid_v7(clock_timestamp(), 0), %(name)s, %(credential_sha256)s, %(queues)s)
on conflict (name) where revoked_at is null do nothing
returning id, name, queues, created_at, revoked_at
