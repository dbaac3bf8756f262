-- The end of tasks that are neither waiting nor held; no status for those that
-- have moved on meanwhile, no row for those that do not exist.
SELECT c.id, CASE
  WHEN NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = c.id)
   AND NOT EXISTS (SELECT FROM task_engine.held_attempts h WHERE h.task_id = c.id)
  THEN (SELECT e.ends_task::text FROM task_engine.ended_executions e
        WHERE e.task_id = c.id ORDER BY e.attempt DESC LIMIT 1)
  END AS ended
FROM task_engine.created_tasks c WHERE c.id = ANY ($1)
