-- Takes the lowest slot that is free or expired (R31).
insert into slots (slot, holder, beat_at)
select n.slot, %(holder)s, clock_timestamp()
from generate_series(1, (select coalesce(max(s.slot), 0) + 1 from slots s)) as n (slot)
left join slots s on s.slot = n.slot
where s.slot is null or s.beat_at < clock_timestamp() - make_interval(secs => %(expiry_seconds)s)
order by n.slot
limit 1
on conflict (slot) do update set holder = excluded.holder, beat_at = excluded.beat_at
returning slot
