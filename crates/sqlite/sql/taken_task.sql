-- What decides about an attempt that is taken back. By keys.
SELECT
    task_class,
    context,
    EXISTS (
        SELECT 1
        FROM task_engine_cancel_requests AS request
        WHERE request.task_id = ?1 AND request.attempt = ?2
    )
FROM task_engine_created_tasks
WHERE id = ?1
