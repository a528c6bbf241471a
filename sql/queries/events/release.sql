-- quarantined -> stored, or duplicate where a live todo already held the key. The memory of a native id has one event for
-- each key: where another one has it, this one is kept beside it as an event without native id.
update events e
set disposition = %(disposition)s, todo_id = %(todo_id)s, error = null,
    native_id = e.native_id and not exists (
        select from events o
        where o.endpoint_id = e.endpoint_id and o.external_id = e.external_id and o.native_id and o.disposition = 'stored'
    )
where e.endpoint_id = %(endpoint_id)s and e.id = %(id)s and e.disposition = 'quarantined'
