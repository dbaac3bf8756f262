-- Tasks that have recorded three steps and wait for another week, every second one
-- for a signal. In the queue, class and priority of the tasks to drain.
BEGIN IMMEDIATE;
CREATE TEMP TABLE before AS
  SELECT coalesce(max(id), 0) AS id, (unixepoch() - 3600) * 1000000 AS hour_ago,
    (unixepoch() + 7 * 86400) * 1000000 AS until
  FROM task_engine_created_tasks;
WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
INSERT INTO task_engine_created_tasks
  (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
SELECT
  'bench_noop',
  '{"to":"ada.lovelace@example.org","subject":"Your order is on its way","template":"order_shipped"}',
  '{}', 'bench', 0, before.hour_ago, before.hour_ago
FROM number, before;
INSERT INTO task_engine_steps
  (task_id, name, number, attempt, kind, result, until, started_at, recorded_at)
SELECT task.id, step.name, step.number, 1,
  CASE WHEN step.number < 3 THEN 'step' WHEN task.id % 2 = 0 THEN 'sleep' ELSE 'wait' END,
  CASE WHEN step.number < 3 THEN '"receipt-1815"' END,
  CASE WHEN step.number = 3 THEN before.until END,
  before.hour_ago, before.hour_ago
FROM before, task_engine_created_tasks AS task,
  (SELECT 1 AS number, 'reserve' AS name UNION ALL SELECT 2, 'charge' UNION ALL SELECT 3, 'approved')
    AS step
WHERE task.id > before.id;
INSERT INTO task_engine_ended_executions
  (task_id, attempt, retry_number, claim_id, instance_id, worker, started_at, stopped_at,
   error, retry_at)
SELECT task.id, 1, 0, 0, 0, 0, before.hour_ago, before.hour_ago,
  '{"exception":"Snoozed","message":"waiting for signal approved"}', before.until
FROM task_engine_created_tasks AS task, before
WHERE task.id > before.id;
INSERT INTO task_engine_suspended_tasks (task_id, attempt, signals)
SELECT task.id, 1, '["approved"]'
FROM task_engine_created_tasks AS task, before
WHERE task.id > before.id AND task.id % 2 = 1;
INSERT INTO task_engine_waiting_tasks
  (task_id, queue, task_class, priority, due_at, attempt, retry_number)
SELECT task.id, task.queue, task.task_class, 0, before.until, 2, 0
FROM task_engine_created_tasks AS task, before
WHERE task.id > before.id;
DROP TABLE before;
COMMIT;
