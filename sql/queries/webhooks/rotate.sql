-- Gives a webhook other secrets, or another address.
update webhooks
set secrets = %(secrets)s, token_sha256 = coalesce(%(token_sha256)s, token_sha256)
where id = %(id)s
