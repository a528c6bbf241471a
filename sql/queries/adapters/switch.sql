-- Enables or disables an adapter; the processes that run it see it within two seconds (R21). None runs one that no process has
-- reported on lately.
update adapters a set enabled = %(enabled)s
where a.name = %(name)s
    and (a.name = any (%(names)s::text[]) or a.reported_at > clock_timestamp() - make_interval(secs => %(seconds)s))
returning a.name
