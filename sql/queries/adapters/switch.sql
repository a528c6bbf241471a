-- Enables or disables an adapter; the processes that run it see it within two seconds (R21).
update adapters a set enabled = %(enabled)s where a.name = %(name)s
returning a.name
