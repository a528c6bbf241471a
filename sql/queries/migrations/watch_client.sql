-- Makes the server look, each second, whether the migrating process is still there: a long migration of one that was
-- killed ends at once, instead of keeping the next start waiting. Some servers (Windows) cannot, and refuse it.
select set_config('client_connection_check_interval', '1s', true);
