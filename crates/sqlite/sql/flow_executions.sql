-- The ended attempts of one task, oldest first, without their results. A range
-- of the primary key.
SELECT
    ended.attempt, instance.name, ended.started_at, ended.stopped_at, ended.retry_at, ended.error,
    ended.ends_task, ended.instance_id IS NOT NULL
FROM task_engine_ended_executions AS ended
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE ended.task_id = ?1
ORDER BY ended.attempt
