-- name: created
-- The tasks of one class that this transaction has created, also in savepoints,
-- which have transaction ids of their own: a row that is visible although its
-- transaction goes on is one's own. Reads the table; tests have small ones.
SELECT
  c.id, c.task_class, c.task_parameters::text, c.context::text, c.queue, c.priority,
  (extract(epoch FROM c.scheduled_at) * 1000000)::bigint,
  (extract(epoch FROM c.created_at) * 1000000)::bigint
FROM task_engine.created_tasks c
-- A row has the lower half of the id; the upper half is the same since 4 billion
-- transactions.
CROSS JOIN (SELECT pg_current_xact_id()::text::bigint >> 32 << 32 AS epoch) AS now
WHERE c.task_class = $1
  AND pg_xact_status((now.epoch + c.xmin::text::bigint)::text::xid8) = 'in progress'
ORDER BY c.id;
