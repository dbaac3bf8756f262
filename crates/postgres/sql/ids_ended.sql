-- For failed and cancelled tasks the partial index has few rows; for stopped
-- ones the primary key is walked from its end.
SELECT e.task_id FROM task_engine.ended_executions e
JOIN task_engine.created_tasks c ON c.id = e.task_id
WHERE e.ends_task = '/* status */' AND e.task_id < $2 AND ($1::text IS NULL OR c.task_class = $1)
  AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                  WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
  AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
  AND NOT EXISTS (SELECT FROM task_engine.claims k WHERE k.task_ids @> ARRAY[e.task_id]
                  AND k.attempts[array_position(k.task_ids, e.task_id)] > e.attempt)
ORDER BY e.task_id DESC LIMIT $3
