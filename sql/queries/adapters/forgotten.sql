-- The highest entry id of a stream that the house may have forgotten (R3); none where nothing was pruned.
select f.milliseconds::text || '-' || f.sequence::text as entry_id from forgotten_entries f where f.stream = %(stream)s
