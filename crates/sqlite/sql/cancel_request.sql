-- A wish to cancel a running attempt; its holder, or recovery, writes the ending.
INSERT INTO task_engine_cancel_requests (task_id, attempt, requested_at)
VALUES (?1, ?2, ?3)
ON CONFLICT (task_id, attempt) DO NOTHING
