-- What the server says of itself, and of this session.
SELECT current_setting('server_version_num')::integer AS version_number,
  current_setting('server_version') AS version,
  pg_is_in_recovery() AS is_standby,
  current_setting('default_transaction_read_only')::boolean AS is_read_only,
  current_setting('fsync')::boolean AS fsync,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('full_page_writes')::boolean AS full_page_writes,
  current_setting('autovacuum')::boolean AS autovacuum,
  clock_timestamp() AS now,
  current_setting('max_connections')::bigint AS connections_max,
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
  (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database())::bigint AS transaction_age,
  current_setting('autovacuum_freeze_max_age')::bigint AS freeze_age_max
