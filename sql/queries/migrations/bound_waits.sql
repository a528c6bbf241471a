-- Bounds, until the end of this transaction, how long it waits for a lock and how long one statement may take.
select
    set_config('lock_timeout', %(lock_ms)s, true),
    set_config('statement_timeout', %(statement_ms)s, true),
    set_config('idle_in_transaction_session_timeout', %(statement_ms)s, true);
