-- Pull adapters: what each is told and how it is, the slot that each process holds (R31), what the pruner may have made the
-- house forget of a stream (R3), and what events need to be quarantined, released and found again (R23).

-- The same ids as before (0001), from one expression that the planner can inline: a quarter of the time. Half of what a batch
-- of inserts cost was spent on its ids. The microseconds are whole minutes and the rest, since a float holds each exactly.
create or replace function uuid_v7(at timestamptz, ordinal integer) returns uuid
language sql volatile parallel safe
as $$
    select (
        lpad(to_hex((
            date_part('epoch', date_trunc('minute', at))::bigint * 1000000 + date_part('microseconds', at)::bigint
        ) / 1000), 12, '0')
        || '7' || lpad(to_hex((
            date_part('epoch', date_trunc('minute', at))::bigint * 1000000 + date_part('microseconds', at)::bigint
        ) % 1000 * 4096 / 1000), 3, '0')
        || to_hex(32768 | (ordinal & 16383))
        || right(gen_random_uuid()::text, 12)
    )::uuid
$$;

-- One row for each adapter that any process ever had in its configuration. `enabled` is the operator's; the configuration
-- gives only its first value (R21). Counters are added to, never set, so that two processes sum up.
create table adapters (
    name text collate "C" primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    family text collate "C" not null default 'queue' check (family in ('queue', 'webhook')),
    transport text collate "C" not null check (char_length(transport) between 1 and 64),
    endpoints text[] collate "C" not null,
    queue text collate "C" not null check (char_length(queue) between 1 and 200),
    enabled boolean not null,
    state text collate "C" not null default 'backing_off'
        check (state in ('running', 'disabled', 'waiting_for_endpoint', 'backing_off')),
    last_poll_at timestamptz,
    last_message_at timestamptz,
    last_error text,
    consecutive_failures integer not null default 0 check (consecutive_failures >= 0),
    stored bigint not null default 0 check (stored >= 0),
    duplicates bigint not null default 0 check (duplicates >= 0),
    quarantined bigint not null default 0 check (quarantined >= 0),
    lost_at_source bigint not null default 0 check (lost_at_source >= 0),
    lag bigint check (lag >= 0),
    -- when a process last said how it is; silence means that no process has this adapter any more
    reported_at timestamptz not null default clock_timestamp()
);

-- R31: a process alone always has the same number, because it finds its own holder id again; numbers are few, because the
-- lowest free or expired one is taken. Rows stay, so that what an expired slot left behind can be looked for.
create table slots (
    slot integer primary key check (slot between 1 and 10000),
    holder uuid not null,
    beat_at timestamptz not null
);
create unique index slots_holder on slots (holder);

-- R3: the highest entry id of each stream whose event the pruner has removed. A lost consumer group is re-created there.
-- `stream` carries its namespace, as the idempotency keys do. Both halves of an entry id are unsigned 64-bit numbers.
create table forgotten_entries (
    stream text collate "C" primary key check (octet_length(stream) between 1 and 512),
    milliseconds numeric(20, 0) not null check (milliseconds between 0 and 18446744073709551615),
    sequence numeric(20, 0) not null check (sequence between 0 and 18446744073709551615)
);

-- Adapters look their endpoints up by name once a second, the revoked ones too (R18).
create index endpoints_every_name on endpoints (name);

-- A released event becomes a todo of the queue it was meant for.
alter table events
    add column adapter text collate "C" check (char_length(adapter) between 1 and 63),
    add column queue text collate "C" check (char_length(queue) between 1 and 200);

-- Seen before, whatever became of it: the stored ones stand in events_seen, all others here, and those are few.
create index events_apart on events (endpoint_id, external_id) where disposition <> 'stored';
-- The operator's look-up and listings, newest first.
create index events_id on events (id);
create index events_disposition on events (disposition, id) where disposition <> 'stored';
