-- Cancels tasks that wait: they end without an attempt having begun. Locked in
-- order, so that two who cancel the same tasks cannot deadlock.
WITH gone AS (
  DELETE FROM task_engine.waiting_tasks WHERE task_id = ANY (ARRAY(
    SELECT task_id FROM task_engine.waiting_tasks WHERE task_id = ANY ($1)
    ORDER BY task_id FOR UPDATE))
  RETURNING task_id, attempt, retry_number
)
INSERT INTO task_engine.ended_executions
  (task_id, attempt, retry_number, stopped_at, ends_task, error)
SELECT task_id, attempt, retry_number, clock_timestamp(), 'cancelled', $2 FROM gone
ORDER BY task_id
RETURNING task_id
