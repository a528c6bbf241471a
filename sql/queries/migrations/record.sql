-- Notes one migration in the ledger, in the transaction that applied it: both stand, or neither.
insert into schema_migrations (version, name, sha256) values (%(version)s, %(name)s, %(sha256)s);
