-- How many tasks ended in this status (?1) and were not sent back, up to ?2.
-- Reads task_engine_unhappy_endings and searches keys; of those that were sent
-- back, what is held now is few, and is taken off afterwards.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM task_engine_ended_executions AS ended
            WHERE ended.ends_task <> 'stopped'
                AND ended.ends_task = ?1
                AND NOT EXISTS (
                    SELECT 1
                    FROM task_engine_ended_executions AS later
                    WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
                )
                AND NOT EXISTS (
                    SELECT 1
                    FROM task_engine_waiting_tasks AS waiting
                    WHERE waiting.task_id = ended.task_id
                )
            LIMIT ?2
        )
    ) - (
        SELECT count(*)
        FROM task_engine_held_attempts AS held
        WHERE (
            SELECT last.ends_task
            FROM task_engine_ended_executions AS last
            WHERE last.task_id = held.task_id
            ORDER BY last.attempt DESC
            LIMIT 1
        ) = ?1
    )
