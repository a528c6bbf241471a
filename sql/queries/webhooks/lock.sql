-- Takes hold of a webhook, so that of two operators one changes it after the other.
select id, scheme, queue, secrets from webhooks where name = %(name)s for update
