-- One migrating process at a time, on this database, until the end of this transaction. The number is ours: 'swbd'.
select pg_advisory_xact_lock(1937203812);
