-- Of the last $1 tasks that failed, those of the last hour, by class. By the index
-- ended_executions_to_look_at.
WITH last AS MATERIALIZED (
  SELECT e.task_id, e.stopped_at FROM task_engine.ended_executions e
  WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task = 'failed'
  ORDER BY e.task_id DESC LIMIT $1
)
SELECT c.task_class, count(*) AS failed, max(last.task_id) AS newest
FROM last JOIN task_engine.created_tasks c ON c.id = last.task_id
WHERE last.stopped_at >= now() - interval '1 hour'
GROUP BY c.task_class
