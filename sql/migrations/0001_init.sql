-- The whole state of the house: endpoints (tenants), todos, the history of their attempts, and the events they came from.
-- Every tenant table's primary key, unique index and foreign key contains endpoint_id, so that the schema can be
-- distributed by endpoint. Text that is compared is collated "C": the same order and the same index everywhere.

-- A UUIDv7 of our own, so that PostgreSQL 15 to 18 behave alike: 48 bits of milliseconds, 12 bits of the fraction below,
-- 14 bits of `ordinal` (the place in its batch, 0 to 16,383), 48 random bits. One instant and rising ordinals make ids
-- that sort in request order.
create function uuid_v7(at timestamptz, ordinal integer) returns uuid
language sql volatile parallel safe
as $$
    select (
        lpad(to_hex(us / 1000), 12, '0')
        || '7' || lpad(to_hex((us % 1000) * 4096 / 1000), 3, '0')
        || to_hex(8 | ((ordinal >> 12) & 3)) || lpad(to_hex(ordinal & 4095), 3, '0')
        || right(gen_random_uuid()::text, 12)
    )::uuid
    from (select (extract(epoch from at) * 1000000)::bigint as us) as instant
$$;

-- The place in its batch that an id was minted with.
create function uuid_v7_ordinal(id uuid) returns integer
language sql immutable parallel safe
as $$ select ('x' || translate(substr(id::text, 20, 4), '-', ''))::bit(16)::integer & 16383 $$;

-- SPEC-0003 Bounded Retries: 30 s, doubling with each attempt, at most 15 minutes.
create function retry_backoff(attempt integer) returns interval
language sql immutable parallel safe
as $$ select make_interval(secs => least(900, 30 * power(2, least(greatest(attempt, 1), 10) - 1))) $$;

create table endpoints (
    id uuid primary key check (id <> '00000000-0000-0000-0000-000000000000'),
    name text collate "C" not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    credential_sha256 bytea not null check (octet_length(credential_sha256) = 32),
    queues text[] collate "C" check (cardinality(queues) between 1 and 100),
    created_at timestamptz not null default clock_timestamp(),
    revoked_at timestamptz,
    -- set once a sweep after the revoke has found nothing open any more, so that sweeps stop looking at it
    drained_at timestamptz check (drained_at is null or revoked_at is not null)
);
-- The name of a revoked endpoint may be vended again; its credential never works again.
create unique index endpoints_name on endpoints (name) where revoked_at is null;
create unique index endpoints_credential on endpoints (credential_sha256);
create index endpoints_draining on endpoints (revoked_at) where revoked_at is not null and drained_at is null;

create table todos (
    endpoint_id uuid not null references endpoints (id),
    id uuid not null,
    queue text collate "C" not null check (char_length(queue) between 1 and 200),
    source text collate "C" not null check (char_length(source) between 1 and 200),
    kind text collate "C" check (char_length(kind) between 1 and 200),
    title text check (char_length(title) <= 1000),
    payload json,
    payload_bytes integer not null default 0 check (payload_bytes >= 0),
    result json,
    result_bytes integer check (result_bytes >= 0),
    error text,
    state text collate "C" not null default 'pending',
    owner text collate "C" check (char_length(owner) between 1 and 200),
    assignee text collate "C" check (char_length(assignee) between 1 and 200),
    attempt integer not null default 0,
    max_attempts integer not null check (max_attempts between 1 and 100),
    idempotency_key text collate "C" check (octet_length(idempotency_key) between 1 and 512),
    event_id uuid,
    lease_token uuid,
    lease_seconds integer check (lease_seconds between 1 and 86400),
    lease_expires_at timestamptz,
    next_retry_at timestamptz,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    claimed_at timestamptz,
    completed_at timestamptz,
    primary key (endpoint_id, id),
    constraint todos_state check (state in ('pending', 'claimed', 'done', 'failed')),
    constraint todos_attempt check (attempt between 0 and max_attempts),
    -- claimed has an owner and a whole lease; nothing else has any part of one
    constraint todos_lease check (
        case when state = 'claimed'
            then owner is not null and claimed_at is not null and attempt >= 1
                and lease_token is not null and lease_seconds is not null and lease_expires_at is not null
            else lease_token is null and lease_seconds is null and lease_expires_at is null
        end
    ),
    -- pending has no owner, and an attempt left: one that a claim could not count would stop every claim of its queue
    constraint todos_pending check (state <> 'pending' or (owner is null and claimed_at is null and attempt < max_attempts)),
    -- only failed has a retry window, and it is below the cap then
    constraint todos_window check (next_retry_at is null or (state = 'failed' and attempt < max_attempts)),
    -- done and dead have an end; nothing else does
    constraint todos_completed check ((completed_at is not null) = (state in ('done', 'failed') and next_retry_at is null)),
    constraint todos_result check (result is null or state = 'done')
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.02);

-- LIVE (R2): the same words stand in todos/create.sql's ON CONFLICT and in todos/live_twins.sql; a test holds them together.
create unique index todos_dedup on todos (endpoint_id, idempotency_key)
    where idempotency_key is not null and state <> 'done' and (state <> 'failed' or next_retry_at is not null);

-- Few plans possible: `max_attempts > 0`, which is true of every row, is a marker. An index with it serves only statements
-- that say it, and no other, whatever the statistics of a queue, which are always wrong, make of their costs. Measured without
-- it, on empty or stale statistics: a claim of one queue read 4,394 rows through todos_pool_any, a look for due retries 17,230
-- terminal ones through todos_queue, a claim of a small endpoint the due retries of all through todos_retry. For the same
-- reason a batch finds its rows by lateral look-ups of one row each, and changes them by their place (ctid), which cannot
-- change while it holds their locks: a join that the planner may turn around reads the whole table for it.

-- Claims: pool rows by queue and over any queue, and the rows assigned to one owner, each through an index of its own.
create index todos_pool_queue on todos (endpoint_id, queue, created_at, id) where state = 'pending' and assignee is null;
create index todos_pool_any on todos (endpoint_id, created_at, id)
    where state = 'pending' and assignee is null and max_attempts > 0;
create index todos_assigned on todos (endpoint_id, assignee, created_at, id) where state = 'pending' and assignee is not null;

-- Leases and retry windows: predicates on columns that terminal states null out, not on `state` (measured: 1.6 to 5 times).
-- The first of each pair serves claims within an endpoint, the second the sweeps over all of them. No queue in them: what
-- is lapsed or due waits there for one sweep at most, so a claim filters the few by queue.
create index todos_lease_endpoint on todos (endpoint_id, lease_expires_at) where lease_expires_at is not null;
create index todos_lease on todos (lease_expires_at) where lease_expires_at is not null and max_attempts > 0;
create index todos_retry_endpoint on todos (endpoint_id, next_retry_at) where next_retry_at is not null;
create index todos_retry on todos (next_retry_at) where next_retry_at is not null and max_attempts > 0;
-- Whether an owner has any of them assigned is asked at every claim, so it may not cost a look at everybody's.
create index todos_assigned_lease on todos (endpoint_id, assignee, lease_expires_at)
    where assignee is not null and lease_expires_at is not null;
create index todos_assigned_retry on todos (endpoint_id, assignee, next_retry_at)
    where assignee is not null and next_retry_at is not null;

-- Listings, newest first: the primary key for all of an endpoint's, this for one queue's, these for the live and the dead,
-- and the last for the operator, who sees every endpoint's.
create index todos_queue on todos (endpoint_id, queue, id) where max_attempts > 0;
create index todos_live on todos (endpoint_id, id)
    where state <> 'done' and (state <> 'failed' or next_retry_at is not null) and max_attempts > 0;
create index todos_dead on todos (endpoint_id, id) where state = 'failed' and next_retry_at is null;
create index todos_id on todos (id);

-- One row for each claim that has ended; the one under way is on the todo itself. An undone claim leaves none (R15).
-- No foreign key to todos: each row is written by the statement that ends the claim, and the check would cost every
-- completion a second look at a row that it has just changed.
create table attempts (
    endpoint_id uuid not null,
    todo_id uuid not null,
    lease_token uuid not null,
    attempt integer not null check (attempt between 1 and 100),
    owner text collate "C" not null,
    claimed_at timestamptz not null,
    ended_at timestamptz not null,
    outcome text collate "C" not null check (outcome in ('completed', 'failed', 'released', 'expired', 'revoked')),
    error text,
    -- false where an operator ended it over the holder's head: the holder's own finish is then no repetition (R32)
    by_holder boolean not null default true,
    primary key (endpoint_id, todo_id, lease_token)
);

-- What came in from a broker or a webhook, kept with its raw bytes: the history of ingestion and, for sources with native
-- ids, the memory that a redelivery is recognised by (R3).
create table events (
    endpoint_id uuid not null references endpoints (id),
    id uuid not null,
    source text collate "C" not null check (char_length(source) between 1 and 200),
    family text collate "C" not null check (family in ('webhook', 'queue')),
    trust_mode text collate "C" not null check (char_length(trust_mode) between 1 and 64),
    verified boolean not null,
    verify_detail text,
    disposition text collate "C" not null check (disposition in ('stored', 'duplicate', 'quarantined', 'discarded')),
    external_id text collate "C" not null check (octet_length(external_id) between 1 and 512),
    native_id boolean not null,
    content_type text,
    headers json,
    body bytea not null,
    body_sha256 bytea not null check (octet_length(body_sha256) = 32),
    error text,
    todo_id uuid,
    received_at timestamptz not null,
    primary key (endpoint_id, id)
);
create unique index events_seen on events (endpoint_id, external_id) where native_id and disposition = 'stored';
