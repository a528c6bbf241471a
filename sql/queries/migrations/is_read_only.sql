-- Whether this server takes no writes at the moment: a standby, or one that was set read-only.
select current_setting('transaction_read_only') = 'on';
