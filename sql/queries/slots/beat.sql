-- Keeps the holder's slot alive by the database's clock; no row means that it has none, or lost it (R31).
update slots s set beat_at = clock_timestamp() where s.holder = %(holder)s
returning s.slot
