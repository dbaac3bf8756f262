-- The tasks that have succeeded, the dependencies, and those of them that were not respected:
-- the dependent began before the task that it depends on had ended.
SELECT
  (SELECT count(*) FROM task_engine.ended_executions e WHERE e.ends_task = 'stopped'),
  count(*),
  count(*) FILTER (WHERE p.stopped_at IS NULL OR c.started_at < p.stopped_at)
FROM task_engine.task_dependencies d
LEFT JOIN task_engine.ended_executions p ON p.task_id = d.depends_on
LEFT JOIN task_engine.ended_executions c ON c.task_id = d.task_id
WHERE d.condition IS NOT NULL
