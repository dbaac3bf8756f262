-- No claim is known here, so whoever still sends a result is late.
INSERT INTO task_engine_ended_executions (
    task_id, attempt, retry_number, instance_id, worker, started_at, stopped_at, retry_at, ends_task,
    result, error
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
