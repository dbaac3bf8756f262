-- Tasks that did their work, oldest first, for as long as the caller reads on.
-- There is no index for this: ids are given in the order of time, so the caller
-- stops at the first task that was created too late to have ended early enough.
-- What has stopped never runs again, so there is nothing else to look at.
SELECT created.id, created.created_at, ended.stopped_at
FROM task_engine_created_tasks AS created
CROSS JOIN task_engine_ended_executions AS ended ON ended.task_id = created.id
WHERE ended.ends_task = 'stopped'
ORDER BY created.id
