-- Every adapter that some process has reported on lately, by name. `enabled` tells what is wanted, `state` what is.
select a.name, a.transport, a.endpoints, a.queue, a.enabled, a.state, a.last_poll_at, a.last_message_at, a.last_error,
    a.consecutive_failures, a.stored, a.duplicates, a.quarantined, a.lost_at_source, a.lag
from adapters a
where a.name = any (%(names)s::text[]) or a.reported_at > clock_timestamp() - make_interval(secs => %(seconds)s)
order by a.name
