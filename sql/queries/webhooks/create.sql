-- Makes a webhook, unless there is one of this name; its routes follow in the same transaction.
insert into webhooks (id, name, token_sha256, scheme, queue, secrets, header, algorithm, encoding)
values (
    uuid_v7(clock_timestamp(), 0), %(name)s, %(token_sha256)s, %(scheme)s, %(queue)s, %(secrets)s, %(header)s, %(algorithm)s,
    %(encoding)s
)
on conflict (name) do nothing
returning id
