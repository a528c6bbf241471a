-- The history of one todo: every claim of it that has ended, oldest first.
select attempt, owner, claimed_at, ended_at, outcome, error
from attempts
where endpoint_id = %(endpoint_id)s and todo_id = %(id)s
order by claimed_at, ended_at
limit 1000
