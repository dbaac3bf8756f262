-- Attempts that ended at ?4 or later, of the tasks from ?1 to ?2, of which the
-- last ?3 attempts are looked at. A range of the primary key, read from its end;
-- the rest by keys. A snooze is no error.
SELECT
    ended.task_id, ended.attempt, created.task_class, created.queue,
    ended.instance_id, instance.name, ended.started_at, ended.stopped_at,
    ended.ends_task, ended.retry_at,
    CASE WHEN ended.ends_task IS NOT NULL OR ended.error ->> '$.exception' IS NOT 'Snoozed' THEN substr(
        coalesce((ended.error ->> '$.exception') || ': ' || (ended.error ->> '$.message'), ended.error),
        1, 500
    ) END
FROM (
    SELECT *
    FROM task_engine_ended_executions
    WHERE task_id BETWEEN ?1 AND ?2
    ORDER BY task_id DESC, attempt DESC
    LIMIT ?3
) AS ended
CROSS JOIN task_engine_created_tasks AS created ON created.id = ended.task_id
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE ended.stopped_at >= ?4
