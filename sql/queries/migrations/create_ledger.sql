-- The ledger of migrations: which files made this schema, and what they said. Only migrations write here, one row each.
create table schema_migrations (
    version integer primary key check (version between 1 and 9999),
    name text not null,
    sha256 text not null check (sha256 ~ '^[0-9a-f]{64}$'),
    applied_at timestamptz not null default clock_timestamp()
);
