-- By the index ended_executions_to_look_at. Only the last word about a task: so
-- nothing comes twice, not even together with those that wait or run.
SELECT e.task_id AS id FROM task_engine.ended_executions e
WHERE e.ends_task IN ('failed', 'cancelled') AND e.ends_task IN (/* statuses */)
  AND e.task_id >= $1 AND e.task_id < $2
  AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                  WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
  AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
  AND NOT EXISTS (SELECT FROM task_engine.claims k WHERE k.task_ids @> ARRAY[e.task_id]
                  AND k.attempts[array_position(k.task_ids, e.task_id)] > e.attempt)
