-- Wishes about attempts that have ended are kept where they are in nobody's way;
-- what the attempt answered is there already, or it did not. Driven by the
-- wishes, which are few.
INSERT INTO task_engine_cancellations (task_id, attempt, requested_at)
SELECT request.task_id, request.attempt, request.requested_at
FROM task_engine_cancel_requests AS request
WHERE EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = request.task_id AND ended.attempt = request.attempt
)
ON CONFLICT (task_id, attempt) DO NOTHING
