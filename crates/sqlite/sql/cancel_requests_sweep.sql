-- Wishes about attempts that have ended. Driven by the wishes, which are few, so
-- that a batch of endings pays for it once.
DELETE FROM task_engine_cancel_requests
WHERE EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = task_engine_cancel_requests.task_id
        AND ended.attempt = task_engine_cancel_requests.attempt
)
