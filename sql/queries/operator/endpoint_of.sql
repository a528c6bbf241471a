-- Which endpoint a todo belongs to, so that an operator's verb can run inside that endpoint's scope.
select t.endpoint_id from todos t where t.id = %(id)s
