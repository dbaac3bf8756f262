-- Evidence of what came too late; the first one is enough. Nothing is kept about
-- a task that retention has removed. By keys alone.
INSERT INTO task_engine_late_results (
    task_id, attempt, arrived_at, claim_id, instance_id, worker,
    started_at, stopped_at, result, error
)
SELECT task_id, attempt, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
FROM task_engine_ended_executions
WHERE task_id = ?1 AND attempt = ?2
ON CONFLICT (task_id, attempt) DO NOTHING
