-- Transactions of others in this database, the oldest first: what they lock of
-- ours, and who waits for them.
SELECT a.pid, coalesce(a.usename, '') AS username, a.application_name, coalesce(a.state, '') AS state,
  greatest(0, extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint AS age_us,
  a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL AS holds_rows,
  ARRAY(
    SELECT DISTINCT c.relname || ' (' || l.mode || ')' FROM pg_locks l
    JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE l.pid = a.pid AND l.granted AND n.nspname = $1 AND c.relkind = 'r'
      AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    ORDER BY 1
  ) AS locks,
  (SELECT count(*) FROM pg_stat_activity b
   WHERE b.wait_event_type = 'Lock' AND a.pid = ANY (pg_blocking_pids(b.pid))) AS waiting
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND a.backend_type = 'client backend' AND a.xact_start IS NOT NULL
ORDER BY a.xact_start
LIMIT 100
