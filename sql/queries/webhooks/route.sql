-- Routes a webhook to endpoints; those that it is routed to already stay.
insert into webhook_routes (endpoint_id, webhook_id)
select id, %(webhook_id)s from unnest(%(endpoint_ids)s::uuid[]) as e (id)
on conflict (endpoint_id, webhook_id) do nothing
