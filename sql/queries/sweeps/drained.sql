-- Closes a revoked endpoint's books, a minute after the revoke at the earliest, when no transaction that began before is left,
-- and only where nothing is open any more: what a sweep stepped over, since somebody held it or it failed, is open still.
-- `max_attempts > 0` is the marker of todos_live (see the schema).
update endpoints set drained_at = clock_timestamp()
where id = %(endpoint_id)s and revoked_at < clock_timestamp() - interval '1 minute' and drained_at is null
    and not exists (
        select from todos t
        where t.endpoint_id = %(endpoint_id)s and t.state <> 'done' and (t.state <> 'failed' or t.next_retry_at is not null)
            and t.max_attempts > 0
    )
