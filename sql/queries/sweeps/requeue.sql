-- failed -> pending: every parked todo of every endpoint whose retry window has elapsed, a bounded batch at a time, stepping
-- over rows that somebody holds and over those that failed alone in this sweep (R10). SPEC-0003 Bounded Retries.
with due as materialized (
    select t.endpoint_id, t.id
    from todos t
    where t.next_retry_at is not null and t.next_retry_at <= statement_timestamp() and t.id <> all (%(bad)s::uuid[])
        and (%(only)s::uuid is null or t.id = %(only)s)
    order by t.next_retry_at
    limit %(limit)s
    for update skip locked
),
moved as (
    update todos t
    set state = 'pending', owner = null, claimed_at = null, next_retry_at = null, updated_at = clock_timestamp()
    from due d
    where t.endpoint_id = d.endpoint_id and t.id = d.id
        and t.state = 'failed' and t.next_retry_at <= statement_timestamp()
    returning t.endpoint_id, t.id, t.queue, t.kind, t.source, t.assignee, t.state
)
select t.endpoint_id, t.id as todo_id, t.queue, t.kind, t.source, t.assignee, t.state from moved t
