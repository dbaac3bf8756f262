-- Tasks that are due, of a lower priority than all others, in a queue that no
-- engine serves: a claim that reads past them shows.
WITH created AS (
  INSERT INTO task_engine.created_tasks
    (priority, scheduled_at, created_at, task_class, queue, task_parameters, context)
  SELECT
    -10, now(), now(), 'bench_noop', 'bench_unserved',
    '{"to": "ada.lovelace@example.org", "subject": "Your order is on its way", "template": "order_shipped"}',
    '{}'
  FROM generate_series(1, $1::bigint)
  RETURNING id, scheduled_at, priority, queue, task_class
)
INSERT INTO task_engine.waiting_tasks
  (task_id, due_at, priority, attempt, retry_number, queue, task_class)
SELECT id, scheduled_at, priority, 1, 0, queue, task_class
FROM created
