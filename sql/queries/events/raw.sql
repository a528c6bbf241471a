-- The bytes that came in, and what they were said to be. For the operator.
select e.body, e.content_type from events e where e.id = %(id)s
