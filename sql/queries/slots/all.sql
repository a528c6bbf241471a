-- Every slot that was ever held, and whether somebody holds it now.
select s.slot, s.beat_at >= clock_timestamp() - make_interval(secs => %(expiry_seconds)s) as live from slots s order by s.slot
