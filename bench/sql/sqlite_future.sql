-- Tasks that are due tomorrow, of a higher priority than all others.
BEGIN IMMEDIATE;
CREATE TEMP TABLE before AS
  SELECT coalesce(max(id), 0) AS id, unixepoch() * 1000000 AS now
  FROM task_engine_created_tasks;
WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
INSERT INTO task_engine_created_tasks
  (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
SELECT
  'bench_noop',
  '{"to":"ada.lovelace@example.org","subject":"Your order is on its way","template":"order_shipped"}',
  '{}', 'bench', 10, before.now + 86400000000, before.now
FROM number, before;
INSERT INTO task_engine_waiting_tasks
  (task_id, queue, task_class, priority, due_at, attempt, retry_number)
SELECT task.id, task.queue, task.task_class, task.priority, task.scheduled_at, 1, 0
FROM task_engine_created_tasks AS task, before
WHERE task.id > before.id;
DROP TABLE before;
COMMIT;
