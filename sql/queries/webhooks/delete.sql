-- Ends a webhook: its address is unknown from now on. What it brought stays.
delete from webhooks where name = %(name)s returning id
