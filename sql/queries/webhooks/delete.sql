-- Ends a webhook and its routes: its address is unknown from now on. What it brought stays.
with ended as (delete from webhooks where name = %(name)s returning id),
unrouted as (delete from webhook_routes r using ended where r.webhook_id = ended.id)
select id from ended
