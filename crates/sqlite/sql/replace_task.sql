-- What was asked for is replaced: what is null stays as it is. By its key.
UPDATE task_engine_created_tasks
SET
    task_parameters = coalesce(?2, task_parameters),
    context = coalesce(?3, context),
    queue = coalesce(?4, queue),
    priority = coalesce(?5, priority),
    scheduled_at = coalesce(?6, scheduled_at)
WHERE id = ?1
