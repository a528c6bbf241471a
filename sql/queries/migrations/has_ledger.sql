-- Whether the ledger of migrations is there already.
select to_regclass('schema_migrations') is not null;
