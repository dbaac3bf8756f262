-- Who has locked a waiting task: its row has the number of their transaction, and
-- a transaction holds a lock on its own number while it is open.
SELECT a.pid, coalesce(a.usename, '') AS username, coalesce(a.application_name, '') AS application,
  coalesce(a.state, '') AS state, a.xact_start AS since, a.query_start AS query_since,
  greatest(0, extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint AS age_us,
  ARRAY[]::text[] AS locks, 0::bigint AS waiting
FROM task_engine.waiting_tasks w
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = w.xmax
  AND l.mode = 'ExclusiveLock' AND l.granted
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE w.task_id = $1
LIMIT 1
