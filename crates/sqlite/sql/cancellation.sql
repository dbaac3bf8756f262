-- How an attempt took it that it was told to end, when it ends. By keys alone.
INSERT INTO task_engine_cancellations (task_id, attempt, requested_at, told_at, answer)
VALUES (
    ?1, ?2,
    coalesce(
        (
            SELECT requested_at
            FROM task_engine_cancel_requests
            WHERE task_id = ?1 AND attempt = ?2
        ),
        ?3
    ),
    ?3, ?4
)
ON CONFLICT (task_id, attempt) DO NOTHING
