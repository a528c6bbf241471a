-- The webhook at this address, and the live endpoints that its deliveries go to.
select w.name, w.scheme, w.queue, w.secrets, w.header, w.algorithm, w.encoding,
    array(
        select e.id from webhook_routes r join endpoints e on e.id = r.endpoint_id
        where r.webhook_id = w.id and e.revoked_at is null order by e.id
    ) as endpoint_ids,
    array(
        select e.name from webhook_routes r join endpoints e on e.id = r.endpoint_id
        where r.webhook_id = w.id and e.revoked_at is null order by e.id
    ) as endpoints
from webhooks w
where w.token_sha256 = %(token_sha256)s
