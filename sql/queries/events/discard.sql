-- quarantined -> discarded: kept as history, and as the memory of its id.
update events e set disposition = 'discarded' where e.id = %(id)s and e.disposition = 'quarantined'
returning e.id
