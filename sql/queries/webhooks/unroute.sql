-- Takes an endpoint of this name, a revoked one too, off the routes of a webhook.
delete from webhook_routes r
using endpoints e
where r.webhook_id = %(webhook_id)s and e.id = r.endpoint_id and e.name = %(endpoint)s
returning r.endpoint_id
