-- Wishes that are over: ranges of the primary key, and of the unique one.
SELECT attempt, requested_at, told_at, answer
FROM task_engine_cancellations
WHERE task_id = ?1
UNION ALL
SELECT wish.attempt, wish.requested_at, NULL, NULL
FROM task_engine_cancel_requests AS wish
JOIN task_engine_ended_executions AS ended
    ON ended.task_id = wish.task_id AND ended.attempt = wish.attempt
WHERE wish.task_id = ?1 AND NOT EXISTS (
    SELECT 1 FROM task_engine_cancellations AS done
    WHERE done.task_id = wish.task_id AND done.attempt = wish.attempt
)
ORDER BY 1
