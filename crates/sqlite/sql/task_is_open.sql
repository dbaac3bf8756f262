-- Whether a task has not ended. One that was sent back after its end waits or is
-- held again; one that retention has removed has ended. Only what engines hold
-- is read from end to end, which is little.
SELECT
    EXISTS (SELECT 1 FROM task_engine_waiting_tasks WHERE task_id = ?1)
    OR EXISTS (SELECT 1 FROM task_engine_created_tasks WHERE id = ?1) AND (
        (
            SELECT ends_task
            FROM task_engine_ended_executions
            WHERE task_id = ?1
            ORDER BY attempt DESC
            LIMIT 1
        ) IS NULL
        OR EXISTS (SELECT 1 FROM task_engine_held_attempts WHERE task_id = ?1)
    )
