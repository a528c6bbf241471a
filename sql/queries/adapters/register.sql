-- Tells the house of the adapters of this process's configuration. `enabled` is the first value only (R21).
insert into adapters (name, transport, endpoints, queue, enabled)
select c.name, c.transport, string_to_array(c.endpoints, ','), c.queue, c.enabled
from unnest(%(names)s::text[], %(transports)s::text[], %(endpoints)s::text[], %(queues)s::text[], %(enabled)s::boolean[])
    as c (name, transport, endpoints, queue, enabled)
order by c.name
on conflict (name) do update
set transport = excluded.transport, endpoints = excluded.endpoints, queue = excluded.queue
