-- Webhooks: who may push, how each proves itself, and which endpoints get a todo of each delivery.

-- Neither the token in the address nor a secret is kept as it is: the one as its digest, the others sealed with a key that is
-- not in the database. Several secrets, newest first, are all good, so that a sender can be moved from one to the next.
create table webhooks (
    id uuid primary key check (id <> '00000000-0000-0000-0000-000000000000'),
    name text collate "C" not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    token_sha256 bytea not null check (octet_length(token_sha256) = 32),
    scheme text collate "C" not null
        check (scheme in ('github', 'gitlab', 'gitea', 'stripe', 'slack', 'standard', 'hmac', 'token')),
    queue text collate "C" not null check (char_length(queue) between 1 and 200),
    secrets bytea[] not null,
    header text collate "C" check (char_length(header) between 1 and 100),
    algorithm text collate "C" check (algorithm in ('sha1', 'sha256', 'sha512')),
    encoding text collate "C" check (encoding in ('hex', 'base64')),
    created_at timestamptz not null default clock_timestamp(),
    -- never open by accident: a scheme that signs has something to check a signature with
    constraint webhooks_secrets check (case when scheme = 'token' then cardinality(secrets) = 0 else cardinality(secrets) between 1 and 10 end),
    constraint webhooks_settings check (scheme = 'hmac' or (header is null and algorithm is null and encoding is null))
);
create unique index webhooks_name on webhooks (name);
create unique index webhooks_token on webhooks (token_sha256);

-- No foreign key to webhooks: one of a tenant's table must contain endpoint_id. Who changes routes holds the webhook's row.
create table webhook_routes (
    endpoint_id uuid not null references endpoints (id),
    webhook_id uuid not null,
    primary key (endpoint_id, webhook_id)
);
create index webhook_routes_webhook on webhook_routes (webhook_id);
