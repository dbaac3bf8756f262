-- Transactions that have written to the queue and not yet ended. Those that did
-- so before this engine said that it sleeps may not wake it.
SELECT l.virtualtransaction FROM pg_locks l
WHERE l.locktype = 'relation' AND l.relation = 'task_engine.waiting_tasks'::regclass
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode = 'RowExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid()
