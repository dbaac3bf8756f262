-- Attempts that this engine holds and somebody wants cancelled. The usual answer
-- is empty, because there are no wishes; so they come first.
SELECT request.task_id, request.attempt
FROM task_engine_cancel_requests AS request
CROSS JOIN task_engine_held_attempts AS held
    ON held.task_id = request.task_id AND held.attempt = request.attempt
WHERE held.instance_id = ?1
ORDER BY request.task_id, request.attempt
