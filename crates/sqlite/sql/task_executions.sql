-- The ended attempts of one task, oldest first. A range of the primary key.
SELECT
    ended.attempt, ended.retry_number, instance.name, ended.worker,
    ended.started_at, ended.stopped_at, ended.result, ended.error, ended.ends_task, ended.retry_at,
    ended.instance_id IS NOT NULL
FROM task_engine_ended_executions AS ended
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE ended.task_id = ?1
ORDER BY ended.attempt
