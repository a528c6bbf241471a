-- Points an event at the todo that a replay made of it.
update events set todo_id = %(todo_id)s where endpoint_id = %(endpoint_id)s and id = %(id)s
