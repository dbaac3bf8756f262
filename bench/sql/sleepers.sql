-- Tasks that have recorded three steps and wait for another week, every second one
-- for a signal. In the queue, class and priority of the tasks to drain.
WITH created AS (
  INSERT INTO task_engine.created_tasks
    (priority, scheduled_at, created_at, task_class, queue, task_parameters, context)
  SELECT
    0, now() - interval '1 hour', now() - interval '1 hour', 'bench_noop', 'bench',
    '{"to": "ada.lovelace@example.org", "subject": "Your order is on its way", "template": "order_shipped"}',
    '{}'
  FROM generate_series(1, $1::bigint)
  RETURNING id, created_at, now() + interval '7 days' AS until
), step AS (
  INSERT INTO task_engine.steps
    (task_id, name, number, attempt, kind, result, until, started_at, recorded_at)
  SELECT c.id,
    CASE s.number WHEN 1 THEN 'reserve' WHEN 2 THEN 'charge' ELSE 'approved' END,
    s.number, 1,
    CASE WHEN s.number < 3 THEN 'step' WHEN c.id % 2 = 0 THEN 'sleep' ELSE 'wait' END,
    CASE WHEN s.number < 3 THEN '"receipt-1815"'::jsonb END,
    CASE WHEN s.number = 3 THEN c.until END,
    c.created_at, c.created_at
  FROM created c CROSS JOIN generate_series(1, 3) AS s(number)
), ended AS (
  INSERT INTO task_engine.ended_executions
    (task_id, attempt, retry_number, claim_id, instance_id, started_at, stopped_at, worker,
     retry_at, next_retry_number, error)
  SELECT id, 1, 0, 0, 0, created_at, created_at, 0, until, 0,
    '{"exception": "Snoozed", "message": "waiting for signal approved"}'
  FROM created
), suspended AS (
  INSERT INTO task_engine.suspended_tasks (task_id, attempt, signals)
  SELECT id, 1, '{approved}' FROM created WHERE id % 2 = 1
)
INSERT INTO task_engine.waiting_tasks
  (task_id, due_at, priority, attempt, retry_number, queue, task_class)
SELECT id, until, 0, 2, 0, 'bench', 'bench_noop'
FROM created
