-- Whether somebody wants this attempt cancelled. By the key.
SELECT EXISTS (
    SELECT 1
    FROM task_engine_cancel_requests
    WHERE task_id = ?1 AND attempt = ?2
)
