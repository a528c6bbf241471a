-- Adds what happened since the last report, and says how the adapter is. Two processes add up; the last word on the rest wins.
update adapters a
set state = c.state,
    last_poll_at = case when c.polled then clock_timestamp() else a.last_poll_at end,
    last_message_at = case when c.heard then clock_timestamp() else a.last_message_at end,
    last_error = c.last_error,
    consecutive_failures = c.consecutive_failures,
    stored = a.stored + c.stored,
    duplicates = a.duplicates + c.duplicates,
    quarantined = a.quarantined + c.quarantined,
    lost_at_source = a.lost_at_source + c.lost_at_source,
    lag = c.lag,
    reported_at = clock_timestamp()
from unnest(
    %(names)s::text[], %(states)s::text[], %(polled)s::boolean[], %(heard)s::boolean[], %(last_errors)s::text[],
    %(failures)s::integer[], %(stored)s::bigint[], %(duplicates)s::bigint[], %(quarantined)s::bigint[], %(lost)s::bigint[],
    %(lags)s::bigint[]
) as c (name, state, polled, heard, last_error, consecutive_failures, stored, duplicates, quarantined, lost_at_source, lag)
where a.name = c.name
