-- Is the database there, does it take writes, and what is it.
select
    current_setting('server_version') as server,
    current_setting('transaction_read_only')::boolean as read_only
