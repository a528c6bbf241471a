-- Closes a revoked endpoint's books, a minute after the revoke at the earliest: no transaction that began before is left by then.
update endpoints set drained_at = clock_timestamp()
where id = %(endpoint_id)s and revoked_at < clock_timestamp() - interval '1 minute' and drained_at is null
