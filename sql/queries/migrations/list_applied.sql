-- What the ledger says was applied, oldest first.
select version, name, sha256 from schema_migrations order by version;
