-- Cancels tasks that wait: they end without an attempt having begun.
WITH gone AS (
  DELETE FROM task_engine.waiting_tasks WHERE task_id = ANY ($1)
  RETURNING task_id, attempt, retry_number
)
INSERT INTO task_engine.ended_executions
  (task_id, attempt, retry_number, stopped_at, ends_task, error)
SELECT task_id, attempt, retry_number, clock_timestamp(), 'cancelled', $2 FROM gone
RETURNING task_id
