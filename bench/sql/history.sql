-- Tasks that did their work an hour ago, straight into the ledger: through an
-- engine a million of them would take longer than the benchmark itself.
WITH created AS (
  INSERT INTO task_engine.created_tasks
    (priority, scheduled_at, created_at, task_class, queue, task_parameters, context)
  SELECT
    0, now() - interval '1 hour', now() - interval '1 hour', 'bench_noop', 'bench',
    '{"to": "ada.lovelace@example.org", "subject": "Your order is on its way", "template": "order_shipped"}',
    '{}'
  FROM generate_series(1, $1::bigint)
  RETURNING id, created_at
)
INSERT INTO task_engine.ended_executions
  (task_id, attempt, retry_number, claim_id, instance_id, started_at, stopped_at, worker,
   ends_task, result)
SELECT id, 1, 0, 0, 0, created_at, created_at, 0, 'stopped', '"done"'
FROM created
