-- One process at a time chooses a slot. Beats do not wait for this: only choosing does.
select pg_advisory_xact_lock(8021163017)
