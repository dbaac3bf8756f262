-- All that engines hold: as many rows as busy workers.
SELECT
    held.task_id, held.attempt, held.retry_number, held.instance_id, held.claimed_at,
    wish.requested_at
FROM task_engine_held_attempts AS held
LEFT JOIN task_engine_cancel_requests AS wish
    ON wish.task_id = held.task_id AND wish.attempt = held.attempt
