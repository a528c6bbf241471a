-- Every webhook, or the one of this name, with the endpoints that it is routed to, the revoked ones apart.
select w.id, w.name, w.scheme, w.queue, w.secrets, w.header, w.algorithm, w.encoding, w.created_at,
    array(
        select e.name from webhook_routes r join endpoints e on e.id = r.endpoint_id
        where r.webhook_id = w.id and e.revoked_at is null order by e.name
    ) as endpoints,
    array(
        select e.name from webhook_routes r join endpoints e on e.id = r.endpoint_id
        where r.webhook_id = w.id and e.revoked_at is not null order by e.name
    ) as revoked_endpoints
from webhooks w
where %(name)s::text is null or w.name = %(name)s
order by w.name
