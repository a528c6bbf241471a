-- Tells every process of this database, in a transaction of its own (see the module).
select pg_notify('switchboard', n.payload) from unnest(%(payloads)s::text[]) as n (payload)
