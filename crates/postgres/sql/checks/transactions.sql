-- Transactions of others in this database, the oldest first: what they lock of
-- ours, and who waits for them. A user without pg_read_all_stats sees of other
-- users' sessions no times and no state, but all locks.
SELECT a.pid, coalesce(a.usename, '') AS username, coalesce(a.application_name, '') AS application,
  coalesce(a.state, '') AS state, a.xact_start AS since, a.query_start AS query_since,
  greatest(0, extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint AS age_us,
  a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL AS holds_rows, locked.locks,
  (SELECT count(*) FROM pg_stat_activity b
   WHERE b.wait_event_type = 'Lock' AND a.pid = ANY (pg_blocking_pids(b.pid))) AS waiting
FROM pg_stat_activity a CROSS JOIN LATERAL (
  SELECT ARRAY(
    SELECT DISTINCT c.relname || ' (' || l.mode || ')' FROM pg_locks l
    JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE l.pid = a.pid AND l.granted AND n.nspname = $1 AND c.relkind = 'r'
      AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    ORDER BY 1
  ) AS locks
) AS locked
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND coalesce(a.backend_type, 'client backend') = 'client backend'
  AND (a.xact_start IS NOT NULL OR cardinality(locked.locks) > 0)
ORDER BY a.xact_start
LIMIT 100
