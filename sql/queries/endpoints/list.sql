-- Every endpoint, the revoked ones too, in order of age.
select id, name, queues, created_at, revoked_at from endpoints order by created_at, id
