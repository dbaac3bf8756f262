-- The fence: an attempt ends once, and whoever inserts first decides. By the key.
INSERT INTO task_engine_ended_executions (
    task_id, attempt, retry_number, claim_id, instance_id, worker,
    started_at, stopped_at, result, error, ends_task, retry_at
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (task_id, attempt) DO NOTHING
