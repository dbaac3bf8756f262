-- Who has locked a waiting task: its row has the number of their transaction, and
-- a transaction holds a lock on its own number while it is open.
SELECT a.pid, coalesce(a.application_name, '') AS application, a.xact_start AS since
FROM task_engine.waiting_tasks w
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = w.xmax
  AND l.mode = 'ExclusiveLock' AND l.granted
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE w.task_id = $1
LIMIT 1
