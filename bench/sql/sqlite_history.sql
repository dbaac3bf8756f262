-- Tasks that did their work an hour ago, straight into the ledger.
BEGIN IMMEDIATE;
CREATE TEMP TABLE before AS
  SELECT coalesce(max(id), 0) AS id, (unixepoch() - 3600) * 1000000 AS hour_ago
  FROM task_engine_created_tasks;
WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
INSERT INTO task_engine_created_tasks
  (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
SELECT
  'bench_noop',
  '{"to":"ada.lovelace@example.org","subject":"Your order is on its way","template":"order_shipped"}',
  '{}', 'bench', 0, before.hour_ago, before.hour_ago
FROM number, before;
INSERT INTO task_engine_ended_executions
  (task_id, attempt, retry_number, claim_id, instance_id, worker, started_at, stopped_at,
   result, ends_task)
SELECT task.id, 1, 0, 0, 0, 0, before.hour_ago, before.hour_ago, '"done"', 'stopped'
FROM task_engine_created_tasks AS task, before
WHERE task.id > before.id;
DROP TABLE before;
COMMIT;
